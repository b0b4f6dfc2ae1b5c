/*
Softmax, a block for each row, which is kept in shared memory: read once, written once.

Scores go there as they are read, 16 bytes at a time where the row is aligned, and are replaced by their exponentials.
A NaN is lost to the maximum, but not to the sum.
---
op = "softmax"
entry = "softmax<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "x", "mask?", "scale", "cols"]
dims = { cols = "x.shape[1]" }
requires = ["cols <= 8192"]  # 32 KB
grid = "x.shape[0]"
block = 256
shared = "4 * cols"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../include/packs.cuh"

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

// The largest in each group of so many neighbouring lanes, in all of them.
template <int lanes>
__device__ float largest(float value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

template <int lanes>
__device__ float total(float value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

// Scores of one row, scale * x + mask, in shared memory. mask: null if there is none.
template <typename T>
__device__ void fetch(float* row, const T* x, const T* mask, float scale, int cols) {
  constexpr int size = Pack<T>::size;
  const int packs = is_aligned(x) && is_aligned(mask) ? cols / size : 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) row[i * size + j] = scale * static_cast<float>(pack.at[j]);
    if (!mask) continue;
    const Pack<T> more = reinterpret_cast<const Pack<T>*>(mask)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) row[i * size + j] += static_cast<float>(more.at[j]);
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) {
    row[c] = scale * static_cast<float>(x[c]);
    if (mask) row[c] += static_cast<float>(mask[c]);
  }
}

template <typename T>
__global__ void __launch_bounds__(256)
    softmax(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ mask, float scale, int cols) {
  extern __shared__ float row[];
  __shared__ float tops[warps], sums[warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  fetch(row, x + start, mask ? mask + start : nullptr, scale, cols);
  __syncthreads();  // threads go on with columns that others have fetched

  float top = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) top = fmaxf(top, row[c]);
  top = largest<32>(top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  top = largest<warps>(tops[lane % warps]);

  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    row[c] = expf(row[c] - top);
    sum += row[c];
  }
  sum = total<32>(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  const float share = 1.0f / total<warps>(sums[lane % warps]);

  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[start + c] = static_cast<T>(row[c] * share);
}
