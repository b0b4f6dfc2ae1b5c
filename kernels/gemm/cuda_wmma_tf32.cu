/*
Matrix product on tensor cores, for float32: operands are rounded to the 11 bits of tf32 when they are staged.

Four warps, each of which sums 32 x 32 elements in float32. A block stages 64 x 16 of a and 16 x 64 of b in shared
memory, with 0 for what lies outside the matrices. Rounding there, and not in the fragments, rounds every number once
instead of once a warp. The result goes through shared memory, too, in the place of the tiles.

---
op = "gemm"
entry = "gemm"
dtypes = ["float32"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 128
numerics = { accumulate = "ampere", tf32 = "rn" }
---
*/
#include <mma.h>

#include <cstdint>

using namespace nvcuda;

constexpr int TILE = 64;   // rows and columns of a block's part of the output
constexpr int DEPTH = 16;  // of a step along k
constexpr int SKEW = 4;    // more columns, so that eight rows of a fragment are in different banks
constexpr int THREADS = 128;

// Rounds ROWS x COLS numbers of a matrix, read four at once where rows are aligned; 0 for what is outside.
template <int ROWS, int COLS>
__device__ void stage(float (&tile)[ROWS][COLS + SKEW], const float* matrix, int rows, int cols, int top, int left) {
  const bool aligned = cols % 4 == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
    const int y = i / (COLS / 4), x = i % (COLS / 4) * 4, row = top + y, col = left + x;
    const float* from = matrix + (long long)row * cols + col;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (aligned && row < rows && col < cols) {
      four = *reinterpret_cast<const float4*>(from);
    } else if (row < rows) {
      if (col < cols) four.x = from[0];
      if (col + 1 < cols) four.y = from[1];
      if (col + 2 < cols) four.z = from[2];
      if (col + 3 < cols) four.w = from[3];
    }
    tile[y][x] = wmma::__float_to_tf32(four.x);
    tile[y][x + 1] = wmma::__float_to_tf32(four.y);
    tile[y][x + 2] = wmma::__float_to_tf32(four.z);
    tile[y][x + 3] = wmma::__float_to_tf32(four.w);
  }
}

__global__ void __launch_bounds__(THREADS)
gemm(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
     int m, int n, int k, float alpha, float beta) {
  using Sums = float[TILE][TILE + 4];
  using A = float[TILE][DEPTH + SKEW];
  using B = float[DEPTH][TILE + SKEW];
  static_assert(sizeof(A) + sizeof(B) <= sizeof(Sums) && sizeof(A) % 32 == 0, "fragments begin at multiples of 32");
  __shared__ __align__(32) unsigned char memory[sizeof(Sums)];
  A& a_tile = *reinterpret_cast<A*>(memory);
  B& b_tile = *reinterpret_cast<B*>(memory + sizeof(A));
  Sums& sum_tile = *reinterpret_cast<Sums*>(memory);

  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, warp = threadIdx.x / 32;
  const int y = warp / 2 * 32, x = warp % 2 * 32;  // of the warp's elements in the tile
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
  }
  for (int begin = 0; begin < k; begin += DEPTH) {
    stage<TILE, DEPTH>(a_tile, a, m, k, top, begin);
    stage<DEPTH, TILE>(b_tile, b, k, n, begin, left);
    __syncthreads();
    for (int l = 0; l < DEPTH; l += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a_part[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b_part[2];
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(a_part[i], &a_tile[y + 16 * i][l], DEPTH + SKEW);
      for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(b_part[j], &b_tile[l][x + 16 * j], TILE + SKEW);
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
      }
    }
    __syncthreads();  // the next step overwrites both tiles, and so does the result
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(&sum_tile[y + 16 * i][x + 16 * j], sums[i][j], TILE + 4, wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
    const int row = top + i / TILE, col = left + i % TILE;
    if (row >= m || col >= n) continue;
    const long long at = (long long)row * n + col;
    float sum = alpha * sum_tile[i / TILE][i % TILE];
    if (c && beta != 0) sum += beta * c[at];  // as in BLAS, beta = 0 reads no c
    out[at] = sum;
  }
}
