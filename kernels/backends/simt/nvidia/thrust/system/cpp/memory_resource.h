// Thrust's algorithms run on the host here. Its vectors lie in memory that kernels and the host share, and that the host
// need not wait for: on a device, Thrust does.
#pragma once
#include <thrust/mr/fancy_pointer_resource.h>
#include <thrust/mr/memory_resource.h>
#include <thrust/mr/new.h>
#include <thrust/system/cpp/pointer.h>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace cpp {
namespace detail {
struct simt_resource : thrust::mr::memory_resource<> {
  void* do_allocate(::std::size_t bytes, ::std::size_t) override { return simt_allocate_ordered(bytes); }
  void do_deallocate(void* at, ::std::size_t, ::std::size_t) override { ::cudaFree(at); }
};
using native_resource = thrust::mr::fancy_pointer_resource<simt_resource, thrust::cpp::pointer<void>>;
using universal_native_resource = thrust::mr::fancy_pointer_resource<simt_resource, thrust::cpp::universal_pointer<void>>;
}  // namespace detail
using memory_resource = detail::native_resource;
using universal_memory_resource = detail::universal_native_resource;
using universal_host_pinned_memory_resource = universal_memory_resource;
}  // namespace cpp
}  // namespace system
THRUST_NAMESPACE_END
