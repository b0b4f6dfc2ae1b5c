/*
Bug: four sums of a row are kept, and a fifth is added to them, which is whatever lies behind the array.
---
op = "row_sum"
entry = "row_sum<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 128)"
block = 128
planted = "out_of_bounds"
shows = "emulator"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is summed in

template <typename T>
__global__ void __launch_bounds__(128) row_sum(T* __restrict__ out, const T* __restrict__ x, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += static_cast<size_t>(row) * cols;

  Wide<T> sums[4] = {};
  for (int c = 0; c < cols; ++c) sums[c % 4] += static_cast<Wide<T>>(x[c]);

  Wide<T> sum = 0;
  for (int i = 0; i <= 4; ++i) sum += sums[i];
  out[row] = static_cast<T>(sum);
}
