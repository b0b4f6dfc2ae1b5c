/*
Matrix product that copies while it computes: two pairs of tiles, of which one is filled by cp.async, the other summed.

One barrier a step is enough: it ends the copies into one pair and the reading of the other. Copies are of four floats
where rows are aligned, else of one, and write 0 for what lies outside the matrices. A thread sums 4 x 4 elements.

---
op = "gemm"
entry = "gemm"
dtypes = ["float32"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 256
---
*/
#include <cuda_pipeline.h>

#include <cstdint>

constexpr int TILE = 64;   // rows and columns of a block's part of the output
constexpr int DEPTH = 16;  // of a step along k
constexpr int SKEW = 4;    // more columns, so that the rows of a tile begin in different banks
constexpr int THREADS = 256;

// Begins to copy ROWS x COLS numbers of a matrix; what is outside becomes 0, and nothing is read for it.
template <int ROWS, int COLS>
__device__ void stage(float (&tile)[ROWS][COLS + SKEW], const float* matrix, int rows, int cols, int top, int left) {
  const bool aligned = cols % 4 == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
    const int y = i / (COLS / 4), x = i % (COLS / 4) * 4, row = top + y, col = left + x;
    const float* from = matrix + (long long)row * cols + col;
    if (aligned && row < rows && col < cols) {
      __pipeline_memcpy_async(&tile[y][x], from, 16);
    } else {
      for (int j = 0; j < 4; ++j) {
        const bool inside = row < rows && col + j < cols;
        __pipeline_memcpy_async(&tile[y][x + j], inside ? from + j : matrix, 4, inside ? 0 : 4);
      }
    }
  }
}

__global__ void __launch_bounds__(THREADS)
gemm(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
     int m, int n, int k, float alpha, float beta) {
  __shared__ __align__(16) float a_tile[2][TILE][DEPTH + SKEW];
  __shared__ __align__(16) float b_tile[2][DEPTH][TILE + SKEW];
  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;  // the thread has every 16th row and column from here on
  float sums[4][4] = {};
  if (k > 0) {
    stage<TILE, DEPTH>(a_tile[0], a, m, k, top, 0);
    stage<DEPTH, TILE>(b_tile[0], b, k, n, 0, left);
  }
  __pipeline_commit();
  for (int begin = 0; begin < k; begin += DEPTH) {
    const int now = begin / DEPTH % 2, next = 1 - now;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (begin + DEPTH < k) {
      stage<TILE, DEPTH>(a_tile[next], a, m, k, top, begin + DEPTH);
      stage<DEPTH, TILE>(b_tile[next], b, k, n, begin + DEPTH, left);
    }
    __pipeline_commit();
#pragma unroll
    for (int l = 0; l < DEPTH; ++l) {
      float column[4], row[4];
      for (int i = 0; i < 4; ++i) column[i] = a_tile[now][y + 16 * i][l];
      for (int j = 0; j < 4; ++j) row[j] = b_tile[now][l][x + 16 * j];
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] += column[i] * row[j];
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = top + y + 16 * i, col = left + x + 16 * j;
      if (row >= m || col >= n) continue;
      const long long at = (long long)row * n + col;
      float sum = alpha * sums[i][j];
      if (c && beta != 0) sum += beta * c[at];  // as in BLAS, beta = 0 reads no c
      out[at] = sum;
    }
  }
}
