/*
Bug: the first warp adds up 32 sums of warps, though the block has only 8 warps. What
lies behind them in shared memory is the block's own on a GPU, and nobody is told.
---
op = "gemma_rmsnorm"
entry = "gemma_rmsnorm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "weight", "eps", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
planted = "out_of_bounds"
shows = "emulator"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

template <typename W>
__device__ W warp_sum(W value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

template <typename T>
__global__ void __launch_bounds__(256)
    gemma_rmsnorm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, Wide<T> eps, int cols) {
  using W = Wide<T>;
  __shared__ W parts[warps], factor;
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  W sum = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const W v = static_cast<W>(x[start + c]);
    sum += v * v;
  }
  sum = warp_sum(sum);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();  // the first warp reads what all have left
  if (warp == 0) {
    sum = warp_sum(parts[lane]);
    if (lane == 0) factor = rsqrt(sum / static_cast<W>(cols) + eps);
  }
  __syncthreads();  // all read what the first thread has left

  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    out[start + c] = static_cast<T>(static_cast<W>(x[start + c]) * factor * (1 + static_cast<W>(weight[c])));
  }
}
