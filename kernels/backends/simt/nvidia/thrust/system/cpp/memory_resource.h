// Vectors of Thrust's device lie in memory that kernels and the host share, and that the host need not wait for: Thrust
// does.
#pragma once
#include_next <thrust/system/cpp/memory_resource.h>
#ifdef SIMT_THRUST
#include <thrust/system/cpp/pointer.h>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
template <class T>
using pointer = thrust::pointer<T, tag, thrust::tagged_reference<T, tag>>;
template <class T>
using universal_pointer = thrust::pointer<T, tag, std::add_lvalue_reference_t<T>>;
template <class T>
using universal_host_pinned_pointer = universal_pointer<T>;
template <class T>
using reference = thrust::tagged_reference<T, tag>;
namespace detail {
struct simt_resource : thrust::mr::memory_resource<> {
  void* do_allocate(::std::size_t bytes, ::std::size_t) override { return simt_allocate_ordered(bytes); }
  void do_deallocate(void* at, ::std::size_t, ::std::size_t) override { ::cudaFree(at); }
};
}  // namespace detail
using memory_resource = thrust::mr::fancy_pointer_resource<detail::simt_resource, pointer<void>>;
using universal_memory_resource = thrust::mr::fancy_pointer_resource<detail::simt_resource, universal_pointer<void>>;
using universal_host_pinned_memory_resource = universal_memory_resource;
}  // namespace cuda
}  // namespace system
THRUST_NAMESPACE_END
#endif
