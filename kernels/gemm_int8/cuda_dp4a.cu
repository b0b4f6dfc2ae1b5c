/*
Integer matrix product with dp4a, which adds four products of bytes to a sum: 64 x 64 elements a block, 4 x 4 a thread.

The tiles are of words: four neighbours along k, in a row of a or in a column of b. What lies outside the matrices is
staged as 0. Sums, and what becomes of them, wrap around.

---
op = "gemm_int8"
entry = "gemm<{T}>"
dtypes = ["int8", "uint8"]
args = ["out", "a", "b", "c", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 256
---
*/
#include <cstdint>

constexpr int TILE = 64;  // rows and columns of a block's part of the output
constexpr int WORDS = 4;  // of a step along k, of four numbers each

// The type of words and sums that goes with a type of bytes: it decides which dp4a it is.
template <typename T>
struct Word;
template <>
struct Word<int8_t> {
  using type = int;
};
template <>
struct Word<uint8_t> {
  using type = unsigned;
};

// One number, 0 outside the matrix, as a byte.
template <typename T>
__device__ unsigned load(const T* matrix, int rows, int cols, int row, int col) {
  return row < rows && col < cols ? uint8_t(matrix[(long long)row * cols + col]) : 0u;
}

// Four numbers as a word, the first in the lowest byte.
__device__ unsigned pack(unsigned first, unsigned second, unsigned third, unsigned fourth) {
  return __byte_perm(__byte_perm(first, second, 0x0040), __byte_perm(third, fourth, 0x0040), 0x5410);
}

// Four neighbours of a row.
template <typename T>
__device__ unsigned load_row(const T* matrix, int rows, int cols, int row, int col, bool aligned) {
  if (aligned && row < rows && col < cols) {
    return *reinterpret_cast<const unsigned*>(matrix + (long long)row * cols + col);
  }
  return pack(load(matrix, rows, cols, row, col), load(matrix, rows, cols, row, col + 1),
              load(matrix, rows, cols, row, col + 2), load(matrix, rows, cols, row, col + 3));
}

// Four neighbours of a column.
template <typename T>
__device__ unsigned load_column(const T* matrix, int rows, int cols, int row, int col) {
  return pack(load(matrix, rows, cols, row, col), load(matrix, rows, cols, row + 1, col),
              load(matrix, rows, cols, row + 2, col), load(matrix, rows, cols, row + 3, col));
}

template <typename T>
__global__ void __launch_bounds__(256)
gemm(int32_t* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const int32_t* __restrict__ c,
     int m, int n, int k, int alpha, int beta) {
  using Sum = typename Word<T>::type;
  __shared__ __align__(16) Sum a_tile[WORDS][TILE + 4];  // 4 more, so that fewer of a column share a bank
  __shared__ __align__(16) Sum b_tile[WORDS][TILE];
  const int thread = threadIdx.x, top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  const int y = thread / 16 * 4, x = thread % 16 * 4;  // of the thread's elements in the tile
  const bool aligned = k % 4 == 0 && reinterpret_cast<uintptr_t>(a) % 4 == 0;
  Sum sums[4][4] = {};
  for (int begin = 0; begin < k; begin += 4 * WORDS) {
    const int a_row = thread / WORDS, a_word = thread % WORDS, b_word = thread / TILE, b_col = thread % TILE;
    a_tile[a_word][a_row] = Sum(load_row(a, m, k, top + a_row, begin + 4 * a_word, aligned));
    b_tile[b_word][b_col] = Sum(load_column(b, k, n, begin + 4 * b_word, left + b_col));
    __syncthreads();
#pragma unroll
    for (int l = 0; l < WORDS; ++l) {
      Sum column[4], row[4];
      for (int i = 0; i < 4; ++i) column[i] = a_tile[l][y + i];
      for (int i = 0; i < 4; ++i) row[i] = b_tile[l][x + i];
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] = __dp4a(column[i], row[j], sums[i][j]);
      }
    }
    __syncthreads();  // the next step overwrites both tiles
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = top + y + i, col = left + x + j;
      if (row >= m || col >= n) continue;
      const long long at = (long long)row * n + col;
      uint32_t sum = uint32_t(alpha) * uint32_t(sums[i][j]);  // without a sign, overflow is defined
      if (beta != 0) sum += uint32_t(beta) * uint32_t(c[at]);  // as in BLAS, beta = 0 reads no c
      out[at] = int32_t(sum);
    }
  }
}
