#pragma once
#include_next <thrust/system/cpp/memory.h>
#ifdef SIMT_THRUST
THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
template <class T>
using allocator = thrust::mr::stateless_resource_allocator<T, memory_resource>;
template <class T>
using universal_allocator = thrust::mr::stateless_resource_allocator<T, universal_memory_resource>;
template <class T>
using universal_host_pinned_allocator = universal_allocator<T>;
}  // namespace cuda
}  // namespace system
THRUST_NAMESPACE_END
#endif
