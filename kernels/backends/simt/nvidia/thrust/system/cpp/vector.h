#pragma once
#include_next <thrust/system/cpp/vector.h>
#ifdef SIMT_THRUST
THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
template <class T, class Allocator = allocator<T>>
using vector = thrust::detail::vector_base<T, Allocator>;
template <class T, class Allocator = universal_allocator<T>>
using universal_vector = thrust::detail::vector_base<T, Allocator>;
template <class T>
using universal_host_pinned_vector = universal_vector<T>;
}  // namespace cuda
}  // namespace system
namespace cuda {
using thrust::system::cuda::allocator;
using thrust::system::cuda::pointer;
using thrust::system::cuda::universal_vector;
using thrust::system::cuda::vector;
}  // namespace cuda
THRUST_NAMESPACE_END
#endif
