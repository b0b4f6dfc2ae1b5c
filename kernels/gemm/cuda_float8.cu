/*
Matrix product of float8 numbers, in tiles of 32 x 32 that are widened to float32 in shared memory; the result is wide.

Each of a block's 32 x 8 threads has four elements of one column.

---
op = "gemm"
entry = "gemm<{T}, {T}>"
dtypes = ["float8_e4m3fn", "float8_e5m2"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 2097120"]
grid = ["ceil_div(n, 32)", "ceil_div(m, 32)"]
block = [32, 8]
---
*/
#include <cuda_fp8.h>

constexpr int TILE = 32;  // rows, columns, and a step along k
constexpr int ROWS = 8;   // of threads
constexpr int EACH = TILE / ROWS;

// One number, 0 outside the matrix.
template <typename T>
__device__ float load(const T* matrix, int rows, int cols, int row, int col) {
  return row < rows && col < cols ? float(matrix[(long long)row * cols + col]) : 0.0f;
}

template <typename A, typename B>
__global__ void __launch_bounds__(TILE * ROWS)
gemm(float* __restrict__ out, const A* __restrict__ a, const B* __restrict__ b, const float* __restrict__ c,
     int m, int n, int k, float alpha, float beta) {
  __shared__ float a_tile[TILE][TILE];  // read one number a warp
  __shared__ float b_tile[TILE][TILE];  // read one row a warp
  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, x = threadIdx.x;
  float sums[EACH] = {};
  for (int begin = 0; begin < k; begin += TILE) {
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
      a_tile[y][x] = load(a, m, k, top + y, begin + x);
      b_tile[y][x] = load(b, k, n, begin + y, left + x);
    }
    __syncthreads();
    for (int l = 0; l < TILE; ++l) {
      for (int i = 0; i < EACH; ++i) sums[i] += a_tile[threadIdx.y + ROWS * i][l] * b_tile[l][x];
    }
    __syncthreads();  // the next step overwrites both tiles
  }
  for (int i = 0; i < EACH; ++i) {
    const int row = top + threadIdx.y + ROWS * i, col = left + x;
    if (row >= m || col >= n) continue;
    const long long at = (long long)row * n + col;
    float sum = alpha * sums[i];
    if (c && beta != 0) sum += beta * c[at];  // as in BLAS, beta = 0 reads no c
    out[at] = sum;
  }
}
