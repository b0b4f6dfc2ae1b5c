// The qualifiers of CUDA C++ and its built-in variables. NVIDIA's own headers come first: they define the qualifiers too.
#pragma once
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

// NVIDIA's headers copy registers, which must not become the calls that memcpy is in check mode.
inline __attribute__((always_inline)) void* simt_registers(void* to, const void* from, size_t bytes) {
  return __builtin_memcpy(to, from, bytes);
}
namespace std {
using ::simt_registers;
}
#define memcpy simt_registers
#ifdef SIMT_PROGRAM  // which has `half` and the like where it includes their headers, as under nvcc
#define CUDA_NO_HALF
#define CUDA_NO_BFLOAT16
#endif
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#if __has_include(<cuda_fp6.h>)
#include <cuda_fp6.h>
#endif
#if __has_include(<cuda_fp4.h>)
#include <cuda_fp4.h>
#endif
#include <math_constants.h>
#undef memcpy
#undef CUDA_NO_HALF
#undef CUDA_NO_BFLOAT16

#include "runtime.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __shared__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __maxnreg__
#undef __cluster_dims__
#undef assert

#define KERNEL_ASSAY 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // in a kernel it was put in another way: headers of g++ 13 have __attribute__((__noinline__))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...) _Pragma("GCC error \"__cluster_dims__ is not emulated\"")
// All shared memory of a library is its block of thread-local storage: unlike a section of its own this works in
// templates and inline functions too, and the runtime finds its address and size.
#ifdef __SANITIZE_THREAD__
#define __shared__ static thread_local __attribute__((used))  // what is written and not read is accessed all the same
#else
#define __shared__ static thread_local
#endif

namespace simt {
// What an assignment is where it is no access of the kernel.
template <class T>
SIMT_UNSEEN inline void copy_unseen(void* to, const void* from) {
  __builtin_memcpy(to, from, sizeof(T));
}
}  // namespace simt

// A thread sees constants; the runtime changes them whenever another thread goes on.
extern SIMT_API SIMT_EACH const uint3 threadIdx, blockIdx;
extern SIMT_API const dim3 blockDim, gridDim;
#define warpSize 32

namespace simt {
// What a kernel with __launch_bounds__ begins with (bounds.py); a device does not even launch it with more threads.
template <class F, class... Further>
SIMT_UNSEEN inline void launch_bounds(long long most, F, Further...) {
  launch_bounds(most);
}
}  // namespace simt
#define assert(condition) \
  ((condition) ? (void)0 : simt::fail(simt::Trouble::trap, simt::here(), "assertion failed: " #condition))
inline void __trap(simt::Place at = simt::here()) { simt::fail(simt::Trouble::trap, at, "__trap()"); }
inline void __brkpt() {}
#define __builtin_assume(...) ((void)0)
