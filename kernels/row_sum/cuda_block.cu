/*
Sums of rows, a block for each row, 16 bytes a thread and step.

Where a row is not aligned, and for what is left of its last 16 bytes, it goes element by element. The sums of threads
go through the warps first and then through shared memory, where each warp leaves one number.
---
op = "row_sum"
entry = "row_sum<{T}>"
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
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is summed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

// The sum of each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W>
__device__ W total(W value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

template <typename T>
__global__ void __launch_bounds__(256) row_sum(T* __restrict__ out, const T* __restrict__ x, int cols) {
  using W = Wide<T>;
  constexpr int size = Pack<T>::size;
  __shared__ W parts[warps];
  x += static_cast<size_t>(blockIdx.x) * cols;
  const int packs = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? cols / size : 0;

  W sum = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) sum += static_cast<W>(pack.at[j]);
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) sum += static_cast<W>(x[c]);

  sum = total<32>(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = total<warps>(parts[threadIdx.x % warps]);
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<T>(sum);
}
