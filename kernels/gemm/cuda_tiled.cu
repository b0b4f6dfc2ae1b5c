/*
Matrix product in tiles: a block stages 64 x 16 of a and 16 x 64 of b in shared memory, a thread sums 4 x 4 elements.

Each number read from shared memory is used four times, each read from the inputs 64 times. The tile of a is transposed,
so that what a thread needs next lies side by side. What lies outside the matrices is staged as 0.

---
op = "gemm"
entry = "gemm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 4194240"]
grid = ["ceil_div(n, 64)", "ceil_div(m, 64)"]
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

constexpr int TILE = 64;   // rows and columns of a block's part of the output
constexpr int DEPTH = 16;  // of a step along k

// What numbers are summed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// Four neighbours, read or written at once.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

// Whether every fourth element of every row is where a Four may be.
template <typename T>
__device__ bool is_aligned(const T* matrix, int cols) {
  return cols % 4 == 0 && reinterpret_cast<uintptr_t>(matrix) % sizeof(Four<T>) == 0;
}

// Four neighbours of a row, 0 outside the matrix.
template <typename T, typename Sum>
__device__ void load(Sum (&to)[4], const T* matrix, int rows, int cols, int row, int col, bool aligned) {
  const T* from = matrix + (long long)row * cols + col;
  if (aligned && row < rows && col < cols) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(from);
    for (int i = 0; i < 4; ++i) to[i] = Sum(four.of[i]);
  } else {
    for (int i = 0; i < 4; ++i) to[i] = row < rows && col + i < cols ? Sum(from[i]) : Sum(0);
  }
}

// The same the other way round; what is outside the matrix is not written.
template <typename T, typename Sum>
__device__ void store(T* matrix, const Sum (&from)[4], int rows, int cols, int row, int col, bool aligned) {
  T* to = matrix + (long long)row * cols + col;
  if (aligned && row < rows && col < cols) {
    Four<T> four;
    for (int i = 0; i < 4; ++i) four.of[i] = T(from[i]);
    *reinterpret_cast<Four<T>*>(to) = four;
  } else {
    for (int i = 0; i < 4; ++i) {
      if (row < rows && col + i < cols) to[i] = T(from[i]);
    }
  }
}

template <typename T, typename Sum = typename Wide<T>::type>
__global__ void __launch_bounds__(256)
gemm(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
     int m, int n, int k, Sum alpha, Sum beta) {
  __shared__ __align__(16) Sum a_tile[DEPTH][TILE + 4];  // 4 more, so that fewer of a column share a bank
  __shared__ __align__(16) Sum b_tile[DEPTH][TILE];
  const int thread = threadIdx.x, top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  const int y = thread / 16 * 4, x = thread % 16 * 4;  // of the thread's elements in the tile
  const bool a_aligned = is_aligned(a, k), b_aligned = is_aligned(b, n);
  Sum sums[4][4] = {};
  for (int begin = 0; begin < k; begin += DEPTH) {
    Sum four[4];
    const int a_row = thread / 4, a_col = thread % 4 * 4, b_row = thread / 16, b_col = thread % 16 * 4;
    load(four, a, m, k, top + a_row, begin + a_col, a_aligned);
    for (int i = 0; i < 4; ++i) a_tile[a_col + i][a_row] = four[i];
    load(four, b, k, n, begin + b_row, left + b_col, b_aligned);
    for (int i = 0; i < 4; ++i) b_tile[b_row][b_col + i] = four[i];
    __syncthreads();
#pragma unroll
    for (int l = 0; l < DEPTH; ++l) {
      Sum column[4], row[4];
      for (int i = 0; i < 4; ++i) column[i] = a_tile[l][y + i];
      for (int i = 0; i < 4; ++i) row[i] = b_tile[l][x + i];
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] += column[i] * row[j];
      }
    }
    __syncthreads();  // the next step overwrites both tiles
  }
  const bool added = c && beta != 0;  // as in BLAS, beta = 0 reads no c
  const bool c_aligned = is_aligned(c, n), out_aligned = is_aligned(out, n);
  for (int i = 0; i < 4; ++i) {
    Sum summand[4] = {};
    if (added) load(summand, c, m, n, top + y + i, left + x, c_aligned);
    for (int j = 0; j < 4; ++j) sums[i][j] = alpha * sums[i][j] + (added ? beta * summand[j] : Sum(0));
    store(out, sums[i], m, n, top + y + i, left + x, out_aligned);
  }
}
