/*
Sums of rows, a warp for each row, whose lanes read neighbouring elements and add up by shuffles.
---
op = "row_sum"
entry = "row_sum<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 8)"
block = [32, 8]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is summed in

template <typename T>
__global__ void __launch_bounds__(256) row_sum(T* __restrict__ out, const T* __restrict__ x, int rows, int cols) {
  using W = Wide<T>;
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  x += static_cast<size_t>(row) * cols;

  W sum = 0;
#pragma unroll 4
  for (int c = threadIdx.x; c < cols; c += 32) sum += static_cast<W>(x[c]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x == 0) out[row] = static_cast<T>(sum);
}
