/*
Bug: the sum of a row begins with what its register holds, which is often zero, but by chance.
---
op = "row_sum"
entry = "row_sum"
dtypes = ["float32"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 128)"
block = 128
planted = "mismatch"
shows = "emulator"
---
*/
__global__ void __launch_bounds__(128)
    row_sum(float* __restrict__ out, const float* __restrict__ x, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += static_cast<size_t>(row) * cols;

  float sum;
  for (int c = 0; c < cols; ++c) sum += x[c];
  out[row] = sum;
}
