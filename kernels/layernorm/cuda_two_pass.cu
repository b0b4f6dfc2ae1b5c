/*
Layer normalization, a block for each row: the mean, then the mean of the squared differences, then the quotients.

Each pass takes 16 bytes a thread and step where the row is aligned. Both reductions go through the warps first and then
through shared memory, where each warp leaves one number.
---
op = "layernorm"
entry = "layernorm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "weight", "bias", "eps", "cols"]
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
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

// Calls use(column, value) for this thread's share of a row, 16 bytes at a time as far as that goes.
template <typename T, typename Use>
__device__ void for_each(const T* row, int cols, Use use) {
  using W = Wide<T>;
  constexpr int size = Pack<T>::size;
  const int packs = reinterpret_cast<uintptr_t>(row) % 16 == 0 ? cols / size : 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(row)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) use(i * size + j, static_cast<W>(pack.at[j]));
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) use(c, static_cast<W>(row[c]));
}

// The sum of each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W>
__device__ W total(W value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

// The sum over the block, in every thread. parts: shared memory for a number a warp.
template <typename W>
__device__ W block_sum(W value, W* parts) {
  value = total<32>(value);
  __syncthreads();  // what was in parts before has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();  // now the parts are there
  return total<warps>(parts[threadIdx.x % warps]);
}

template <typename T>
__global__ void __launch_bounds__(256)
    layernorm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
              Wide<T> eps, int cols) {
  using W = Wide<T>;
  __shared__ W parts[warps];
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  out += start, x += start;

  W sum = 0;
  for_each(x, cols, [&](int, W v) { sum += v; });
  const W mean = block_sum(sum, parts) / static_cast<W>(cols);

  W squares = 0;
  for_each(x, cols, [&](int, W v) { squares += (v - mean) * (v - mean); });
  const W factor = rsqrt(block_sum(squares, parts) / static_cast<W>(cols) + eps);

  for_each(x, cols, [&](int c, W v) {
    out[c] = static_cast<T>((v - mean) * factor * static_cast<W>(weight[c]) + static_cast<W>(bias[c]));
  });
}
