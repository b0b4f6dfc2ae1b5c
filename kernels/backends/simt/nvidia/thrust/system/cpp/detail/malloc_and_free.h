#pragma once
#include_next <thrust/system/cpp/detail/malloc_and_free.h>
#ifdef SIMT_THRUST
#include <thrust/detail/raw_pointer_cast.h>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
namespace detail {
template <class P>
void* malloc(execution_policy<P>&, std::size_t bytes) {
  void* got = nullptr;
  ::cudaMalloc(&got, bytes);
  return got;
}
template <class P, class Pointer>
void free(execution_policy<P>&, Pointer at) { ::cudaFree(thrust::raw_pointer_cast(at)); }
}  // namespace detail
}  // namespace cuda
}  // namespace system
THRUST_NAMESPACE_END
#endif
