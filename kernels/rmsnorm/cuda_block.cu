/*
RMS normalization, a block for each row, 16 bytes a thread and step.

Where a row or the weight is not aligned, and for what is left of the last 16 bytes, it goes element by element. The sum
of squares goes through the warps first and then through shared memory, where each warp leaves one number.
---
op = "rmsnorm"
entry = "rmsnorm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "weight", "eps", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "../include/packs.cuh"

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

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
__global__ void __launch_bounds__(256)
    rmsnorm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, Wide<T> eps, int cols) {
  using W = Wide<T>;
  constexpr int size = Pack<T>::size;
  __shared__ W parts[warps];
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  out += start, x += start;
  const int packs = is_aligned(out) && is_aligned(x) && is_aligned(weight) ? cols / size : 0;

  W sum = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) sum += static_cast<W>(pack.at[j]) * static_cast<W>(pack.at[j]);
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) {
    sum += static_cast<W>(x[c]) * static_cast<W>(x[c]);
  }

  sum = total<32>(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = total<warps>(parts[threadIdx.x % warps]);
  const W factor = rsqrt(sum / static_cast<W>(cols) + eps);

  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
    const Pack<T> weights = reinterpret_cast<const Pack<T>*>(weight)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) {
      pack.at[j] = static_cast<T>(static_cast<W>(pack.at[j]) * factor * static_cast<W>(weights.at[j]));
    }
    reinterpret_cast<Pack<T>*>(out)[i] = pack;
  }
  for (int c = packs * size + threadIdx.x; c < cols; c += blockDim.x) {
    out[c] = static_cast<T>(static_cast<W>(x[c]) * factor * static_cast<W>(weight[c]));
  }
}
