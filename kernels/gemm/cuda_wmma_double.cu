/*
Matrix product on tensor cores, for float64: tiles of 8 x 8 that grow by 4 along k, which round as IEEE 754 wants.

Four warps, each of which sums 32 x 32 elements. A block stages 64 x 16 of a and 16 x 64 of b in shared memory, with 0
for what lies outside the matrices. The result goes through shared memory, too, in the place of the tiles.

---
op = "gemm"
entry = "gemm"
dtypes = ["float64"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 128
---
*/
#include <mma.h>

#include <cstdint>

using namespace nvcuda;

constexpr int TILE = 64;   // rows and columns of a block's part of the output
constexpr int DEPTH = 16;  // of a step along k
constexpr int SKEW = 4;    // more columns, so that four rows of a fragment are in different banks
constexpr int THREADS = 128;

// Copies ROWS x COLS numbers of a matrix, two at once where rows are aligned, with 0 for what is outside.
template <int ROWS, int COLS>
__device__ void stage(double (&tile)[ROWS][COLS + SKEW], const double* matrix, int rows, int cols, int top, int left) {
  const bool aligned = cols % 2 == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  for (int i = threadIdx.x; i < ROWS * COLS / 2; i += THREADS) {
    const int y = i / (COLS / 2), x = i % (COLS / 2) * 2, row = top + y, col = left + x;
    const double* from = matrix + (long long)row * cols + col;
    if (aligned && row < rows && col < cols) {
      *reinterpret_cast<double2*>(&tile[y][x]) = *reinterpret_cast<const double2*>(from);
    } else {
      for (int j = 0; j < 2; ++j) tile[y][x + j] = row < rows && col + j < cols ? from[j] : 0.0;
    }
  }
}

__global__ void __launch_bounds__(THREADS)
gemm(double* __restrict__ out, const double* __restrict__ a, const double* __restrict__ b,
     const double* __restrict__ c, int m, int n, int k, double alpha, double beta) {
  using Sums = double[TILE][TILE + 4];
  using A = double[TILE][DEPTH + SKEW];
  using B = double[DEPTH][TILE + SKEW];
  static_assert(sizeof(A) + sizeof(B) <= sizeof(Sums) && sizeof(A) % 32 == 0, "fragments begin at multiples of 32");
  __shared__ __align__(32) unsigned char memory[sizeof(Sums)];
  A& a_tile = *reinterpret_cast<A*>(memory);
  B& b_tile = *reinterpret_cast<B*>(memory + sizeof(A));
  Sums& sum_tile = *reinterpret_cast<Sums*>(memory);

  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, warp = threadIdx.x / 32;
  const int y = warp / 2 * 32, x = warp % 2 * 32;  // of the warp's elements in the tile
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) wmma::fill_fragment(sums[i][j], 0.0);
  }
  for (int begin = 0; begin < k; begin += DEPTH) {
    stage<TILE, DEPTH>(a_tile, a, m, k, top, begin);
    stage<DEPTH, TILE>(b_tile, b, k, n, begin, left);
    __syncthreads();
    for (int l = 0; l < DEPTH; l += 4) {
      wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> a_part[4];
      wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::row_major> b_part[4];
      for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(a_part[i], &a_tile[y + 8 * i][l], DEPTH + SKEW);
      for (int j = 0; j < 4; ++j) wmma::load_matrix_sync(b_part[j], &b_tile[l][x + 8 * j], TILE + SKEW);
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
      }
    }
    __syncthreads();  // the next step overwrites both tiles, and so does the result
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      wmma::store_matrix_sync(&sum_tile[y + 8 * i][x + 8 * j], sums[i][j], TILE + 4, wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
    const int row = top + i / TILE, col = left + i % TILE;
    if (row >= m || col >= n) continue;
    const long long at = (long long)row * n + col;
    double sum = alpha * sum_tile[i / TILE][i % TILE];
    if (c && beta != 0) sum += beta * c[at];  // as in BLAS, beta = 0 reads no c
    out[at] = sum;
  }
}
