/*
Integer matrix product on tensor cores, as short as it can be: a block is one warp, and has 16 x 16 elements.

Two tiles of 256 bytes hold the next 16 columns of a and rows of b, with 0 for what lies outside the matrices, and one
of 1 KB the result. A warp needs no barrier of the block. Sums, and what becomes of them, wrap around.

---
op = "gemm_int8"
entry = "gemm<{T}>"
dtypes = ["int8", "uint8"]
args = ["out", "a", "b", "c", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 1048560"]
grid = ["ceil_div(n, 16)", "ceil_div(m, 16)"]
block = 32
---
*/
#include <mma.h>

#include <cstdint>

using namespace nvcuda;

constexpr int TILE = 16;

// Copies 16 x 16 numbers of a matrix, with 0 for what is outside. Half a warp reads a row.
template <typename T>
__device__ void stage(T (&tile)[TILE][TILE], const T* matrix, int rows, int cols, int top, int left) {
  for (int i = threadIdx.x; i < TILE * TILE; i += 32) {
    const int row = top + i / TILE, col = left + i % TILE;
    tile[i / TILE][i % TILE] = row < rows && col < cols ? matrix[(long long)row * cols + col] : T(0);
  }
}

template <typename T>
__global__ void __launch_bounds__(32)
gemm(int32_t* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const int32_t* __restrict__ c,
     int m, int n, int k, int alpha, int beta) {
  __shared__ __align__(32) T a_tile[TILE][TILE];
  __shared__ __align__(32) T b_tile[TILE][TILE];
  __shared__ __align__(32) int32_t sum_tile[TILE][TILE];
  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sums;
  wmma::fill_fragment(sums, 0);
  for (int begin = 0; begin < k; begin += TILE) {
    stage(a_tile, a, m, k, top, begin);
    stage(b_tile, b, k, n, begin, left);
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b_part;
    wmma::load_matrix_sync(a_part, a_tile[0], TILE);
    wmma::load_matrix_sync(b_part, b_tile[0], TILE);
    wmma::mma_sync(sums, a_part, b_part, sums);
    __syncwarp();  // the next step overwrites both tiles
  }
  wmma::store_matrix_sync(sum_tile[0], sums, TILE, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < TILE * TILE; i += 32) {
    const int row = top + i / TILE, col = left + i % TILE;
    if (row >= m || col >= n) continue;
    const long long at = (long long)row * n + col;
    uint32_t sum = uint32_t(alpha) * uint32_t(sum_tile[i / TILE][i % TILE]);  // without a sign, overflow is defined
    if (beta != 0) sum += uint32_t(beta) * uint32_t(c[at]);  // as in BLAS, beta = 0 reads no c
    out[at] = int32_t(sum);
  }
}
