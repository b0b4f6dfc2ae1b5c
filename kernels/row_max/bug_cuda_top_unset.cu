/*
Bug: the maximum of a row begins with what its register holds: right if that happens to be less than all of the row.
---
op = "row_max"
entry = "row_max"
dtypes = ["float32"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 128)"
block = 128
planted = "nondeterministic"
shows = "emulator"
---
*/
__global__ void __launch_bounds__(128)
    row_max(float* __restrict__ out, const float* __restrict__ x, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += static_cast<size_t>(row) * cols;

  float top;
  for (int c = 0; c < cols; ++c) top = fmaxf(top, x[c]);
  out[row] = top;
}
