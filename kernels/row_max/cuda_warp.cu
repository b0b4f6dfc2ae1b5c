/*
Largest numbers of rows, a warp for each row, by fmax: a NaN counts only where there is nothing else.
---
op = "row_max"
entry = "row_max<{T}>"
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
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is compared in

template <typename T>
__global__ void __launch_bounds__(256) row_max(T* __restrict__ out, const T* __restrict__ x, int rows, int cols) {
  using W = Wide<T>;
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  x += static_cast<size_t>(row) * cols;

  W top = NAN;
#pragma unroll 4
  for (int c = threadIdx.x; c < cols; c += 32) top = max(top, static_cast<W>(x[c]));
  for (int step = 16; step > 0; step /= 2) top = max(top, __shfl_down_sync(0xffffffff, top, step));
  if (threadIdx.x == 0) out[row] = static_cast<T>(top);
}
