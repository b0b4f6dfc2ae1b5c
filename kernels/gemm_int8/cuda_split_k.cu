/*
Integer matrix product of small matrices with a long k: the warps of a block share k, and add their sums atomically.

A block has 4 x 32 elements, a lane one column of them; a warp takes every eighth row of b. In whatever order integers
are added, the result is the same. Sums, and what becomes of them, wrap around.

---
op = "gemm_int8"
entry = "gemm<{T}>"
dtypes = ["int8", "uint8"]
args = ["out", "a", "b", "c", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 262140"]
grid = ["ceil_div(n, 32)", "ceil_div(m, 4)"]
block = [32, 8]
---
*/
#include <cstdint>

constexpr int ROWS = 4;
constexpr int COLS = 32;

template <typename T>
__global__ void gemm(int32_t* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b,
                     const int32_t* __restrict__ c, int m, int n, int k, int alpha, int beta) {
  __shared__ uint32_t totals[ROWS][COLS];  // without a sign, overflow is defined
  const int top = blockIdx.y * ROWS, lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
  const int col = blockIdx.x * COLS + lane;
  if (warp < ROWS) totals[warp][lane] = 0;
  __syncthreads();
  uint32_t sums[ROWS] = {};
  for (int l = warp; l < k && col < n; l += warps) {
    const int factor = b[(long long)l * n + col];
    for (int i = 0; i < ROWS; ++i) {
      if (top + i < m) sums[i] += uint32_t(a[(long long)(top + i) * k + l] * factor);
    }
  }
  for (int i = 0; i < ROWS; ++i) atomicAdd(&totals[i][lane], sums[i]);
  __syncthreads();
  const int row = top + warp;
  if (warp >= ROWS || row >= m || col >= n) return;
  const long long at = (long long)row * n + col;
  uint32_t sum = uint32_t(alpha) * totals[warp][lane];
  if (beta != 0) sum += uint32_t(beta) * uint32_t(c[at]);  // as in BLAS, beta = 0 reads no c
  out[at] = int32_t(sum);
}
