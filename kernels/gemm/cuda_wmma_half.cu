/*
Matrix product on tensor cores, for half precision: four warps, each of which sums 32 x 32 elements in float32.

A block stages 64 x 32 of a and 32 x 64 of b in shared memory, with 0 for what lies outside the matrices, so that the
tensor cores see full tiles whatever m, n and k. Who holds which element of a fragment is not said: the result goes
through shared memory, too, in the place of the tiles.

---
op = "gemm"
entry = "gemm<{T}>"
dtypes = ["float16", "bfloat16"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 128
numerics = { accumulate = "ampere" }
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

using namespace nvcuda;

constexpr int TILE = 64;   // rows and columns of a block's part of the output
constexpr int DEPTH = 32;  // of a step along k
constexpr int SKEW = 8;    // more columns, so that eight rows of a fragment are in different banks
constexpr int THREADS = 128;

// Copies ROWS x COLS numbers of a matrix, 16 bytes at once where rows are aligned, with 0 for what is outside.
template <int ROWS, int COLS, typename T>
__device__ void stage(T (&tile)[ROWS][COLS + SKEW], const T* matrix, int rows, int cols, int top, int left) {
  constexpr int PACK = 16 / sizeof(T);
  const bool aligned = cols % PACK == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  for (int i = threadIdx.x; i < ROWS * COLS / PACK; i += THREADS) {
    const int y = i / (COLS / PACK), x = i % (COLS / PACK) * PACK, row = top + y, col = left + x;
    const T* from = matrix + (long long)row * cols + col;
    if (aligned && row < rows && col < cols) {
      *reinterpret_cast<uint4*>(&tile[y][x]) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int j = 0; j < PACK; ++j) tile[y][x + j] = row < rows && col + j < cols ? from[j] : T(0.0f);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
gemm(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
     int m, int n, int k, float alpha, float beta) {
  using Sums = float[TILE][TILE + 4];
  using A = T[TILE][DEPTH + SKEW];
  using B = T[DEPTH][TILE + SKEW];
  static_assert(sizeof(A) + sizeof(B) <= sizeof(Sums) && sizeof(A) % 32 == 0, "fragments begin at multiples of 32");
  __shared__ __align__(32) unsigned char memory[sizeof(Sums)];
  A& a_tile = *reinterpret_cast<A*>(memory);
  B& b_tile = *reinterpret_cast<B*>(memory + sizeof(A));
  Sums& sum_tile = *reinterpret_cast<Sums*>(memory);

  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE, warp = threadIdx.x / 32;
  const int y = warp / 2 * 32, x = warp % 2 * 32;  // of the warp's elements in the tile
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
  }
  for (int begin = 0; begin < k; begin += DEPTH) {
    stage<TILE, DEPTH>(a_tile, a, m, k, top, begin);
    stage<DEPTH, TILE>(b_tile, b, k, n, begin, left);
    __syncthreads();
    for (int l = 0; l < DEPTH; l += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a_part[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b_part[2];
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
    if (c && beta != 0) sum += beta * float(c[at]);  // as in BLAS, beta = 0 reads no c
    out[at] = T(sum);
  }
}
