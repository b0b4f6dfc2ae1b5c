/*
Integer matrix product on tensor cores: four warps, each of which sums 32 x 32 elements, from tiles in shared memory.

A fragment begins at a multiple of 32 bytes, but 16 columns are only 16 bytes: so a tile is cut into panels of 16
columns, whose rows are skewed, 48 bytes apart, which keeps eight rows of a fragment in different banks. What lies
outside the matrices is staged as 0. The result goes through shared memory, too, in the place of the tiles. Sums, and
what becomes of them, wrap around.

---
op = "gemm_int8"
entry = "gemm<{T}>"
dtypes = ["int8", "uint8"]
args = ["out", "a", "b", "c", "m", "n", "k", "alpha", "beta"]
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
constexpr int DEPTH = 64;  // of a step along k
constexpr int PANEL = 16;  // columns of a panel, which are read at once
constexpr int PITCH = 48;  // from a row of a panel to the next
constexpr int THREADS = 128;

// Copies ROWS x COLS numbers of a matrix, 16 at once where rows are aligned, with 0 for what is outside.
template <int ROWS, int COLS, typename T>
__device__ void stage(T (&tile)[COLS / PANEL][ROWS][PITCH], const T* matrix, int rows, int cols, int top, int left) {
  const bool aligned = cols % PANEL == 0 && reinterpret_cast<uintptr_t>(matrix) % PANEL == 0;
  for (int i = threadIdx.x; i < ROWS * COLS / PANEL; i += THREADS) {
    const int y = i / (COLS / PANEL), panel = i % (COLS / PANEL), row = top + y, col = left + panel * PANEL;
    const T* from = matrix + (long long)row * cols + col;
    T* to = tile[panel][y];
    if (aligned && row < rows && col < cols) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int j = 0; j < PANEL; ++j) to[j] = row < rows && col + j < cols ? from[j] : T(0);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
gemm(int32_t* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const int32_t* __restrict__ c,
     int m, int n, int k, int alpha, int beta) {
  using Sums = int32_t[TILE][TILE + 4];
  using A = T[DEPTH / PANEL][TILE][PITCH];
  using B = T[TILE / PANEL][DEPTH][PITCH];
  static_assert(sizeof(Sums) <= sizeof(A) + sizeof(B) && sizeof(A) % 32 == 0, "fragments begin at multiples of 32");
  __shared__ __align__(32) unsigned char memory[sizeof(A) + sizeof(B)];
  A& a_tile = *reinterpret_cast<A*>(memory);
  B& b_tile = *reinterpret_cast<B*>(memory + sizeof(A));
  Sums& sum_tile = *reinterpret_cast<Sums*>(memory);

  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, warp = threadIdx.x / 32;
  const int y = warp / 2 * 32, x = warp % 2 * 32;  // of the warp's elements in the tile
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sums[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0);
  }
  for (int begin = 0; begin < k; begin += DEPTH) {
    stage<TILE, DEPTH>(a_tile, a, m, k, top, begin);
    stage<DEPTH, TILE>(b_tile, b, k, n, begin, left);
    __syncthreads();
    for (int l = 0; l < DEPTH; l += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a_part[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b_part[2];
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(a_part[i], a_tile[l / PANEL][y + 16 * i], PITCH);
      for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(b_part[j], b_tile[x / PANEL + j][l], PITCH);
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
    uint32_t sum = uint32_t(alpha) * uint32_t(sum_tile[i / TILE][i % TILE]);  // without a sign, overflow is defined
    if (beta != 0) sum += uint32_t(beta) * uint32_t(c[at]);  // as in BLAS, beta = 0 reads no c
    out[at] = int32_t(sum);
  }
}
