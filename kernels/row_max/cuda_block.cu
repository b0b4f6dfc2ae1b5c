/*
Largest elements of rows, NaN if there is one: a block for each row, 16 bytes a thread and step.

Where a row is not aligned, and for what is left of its last 16 bytes, it goes element by element. What threads have
found goes through the warps first and then through shared memory, where each warp leaves one number.
---
op = "row_max"
entry = "row_max<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "../include/packs.cuh"

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is compared in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

// The larger of two, or NaN if one is NaN, which fmax would lose.
template <typename W>
__device__ W larger(W a, W b) {
  return a > b || a != a ? a : b;
}

// The largest in each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W>
__device__ W largest(W value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value = larger(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

template <typename T>
__global__ void __launch_bounds__(256) row_max(T* __restrict__ out, const T* __restrict__ x, int cols) {
  using W = Wide<T>;
  constexpr int size = Pack<T>::size;
  __shared__ W parts[warps];
  x += static_cast<size_t>(blockIdx.x) * cols;
  const int packs = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? cols / size : 0;

  W top = -INFINITY;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) top = larger(top, static_cast<W>(pack.at[j]));
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) top = larger(top, static_cast<W>(x[c]));

  top = largest<32>(top);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  top = largest<warps>(parts[threadIdx.x % warps]);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<T>(top);
}
