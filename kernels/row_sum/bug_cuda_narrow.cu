/*
Bug: elements are added up in their own 16-bit type.
---
op = "row_sum"
entry = "row_sum<{T}>"
dtypes = ["float16", "bfloat16"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 8)"
block = [32, 8]
planted = "mismatch"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
__global__ void __launch_bounds__(256) row_sum(T* __restrict__ out, const T* __restrict__ x, int rows, int cols) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  x += static_cast<size_t>(row) * cols;

  T sum = 0.0f;
#pragma unroll 4
  for (int c = threadIdx.x; c < cols; c += 32) sum = __hadd(sum, x[c]);
  for (int step = 16; step > 0; step /= 2) sum = __hadd(sum, __shfl_down_sync(0xffffffff, sum, step));
  if (threadIdx.x == 0) out[row] = sum;
}
