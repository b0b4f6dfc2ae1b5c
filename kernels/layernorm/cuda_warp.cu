/*
Layer normalization, a warp for each row of up to 1024 columns, which stays in registers: read once, written once.

A lane has every 32nd element of its row; the mean, and then the mean of the squared differences, are found by shuffles.
---
op = "layernorm"
entry = "layernorm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "weight", "bias", "eps", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
requires = ["cols <= 1024"]
grid = "ceil_div(rows, 4)"
block = [32, 4]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int most = 1024 / 32;  // elements of a lane

template <typename W>
__device__ W warp_sum(W value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

template <typename T>
__global__ void __launch_bounds__(128)
    layernorm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
              Wide<T> eps, int rows, int cols) {
  using W = Wide<T>;
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  const size_t start = static_cast<size_t>(row) * cols;

  W v[most];
  W sum = 0;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int column = lane + 32 * j;
    if (column >= cols) break;
    v[j] = static_cast<W>(x[start + column]);
    sum += v[j];
  }
  const W mean = warp_sum(sum) / static_cast<W>(cols);

  W squares = 0;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    if (lane + 32 * j >= cols) break;
    v[j] -= mean;
    squares += v[j] * v[j];
  }
  const W factor = rsqrt(warp_sum(squares) / static_cast<W>(cols) + eps);

#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int column = lane + 32 * j;
    if (column >= cols) break;
    const W normal = v[j] * factor * static_cast<W>(weight[column]);
    out[start + column] = static_cast<T>(normal + static_cast<W>(bias[column]));
  }
}
