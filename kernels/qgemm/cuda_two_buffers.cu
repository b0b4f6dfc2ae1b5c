/*
Product of packed weights and packed activations, unpacked into one tile while the other is multiplied.

A block of threads makes 64 by 32 outputs, each thread 4 by 4 of them in registers. There are two tiles in shared
memory, four blocks of the format deep: the next one is staged before the present one is multiplied, so that its loads
are under way meanwhile, and one barrier a round is enough.

---
op = "qgemm"
entry = "qgemm<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "n", "blocks"]
dims = { m = "w.shape[0]", n = "a.shape[0]", blocks = "a.shape[1] // (34 + 2 * (activations == 'q8_1'))" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0", "n <= 2097120"]
grid = ["ceil_div(m, 64)", "ceil_div(n, 32)"]
block = 128
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

constexpr int ROWS = 64, COLUMNS = 32, DEPTH = 4;  // of a tile: of weights, of activations, and blocks of the format
constexpr int X = 16, Y = 8, THREADS = X * Y;       // each thread has ROWS / X times COLUMNS / Y outputs
constexpr int STRIDE = 8 * DEPTH + 1;               // words of a row; odd, so that rows begin on different banks

struct Tile {
  int weights[ROWS][STRIDE], activations[COLUMNS][STRIDE];
  float2 weight_scales[DEPTH][ROWS], activation_scales[DEPTH][COLUMNS];
};

// Unpacks one block into eight words of shared memory, in the order of the elements. Returns its scale and what the sum
// of its elements is worth: the stored one in blocks that have it, else that of the quants, which float holds exactly.
template <typename A>
__device__ __forceinline__ float2 unpack_activations(int* words, const uint8_t* a) {
  int counted = 0;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Quants p = A::quants(a, part);
    words[part] = p.low;
    words[part + 4] = p.high;
    if constexpr (!A::has_sum) counted = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, counted));
  }
  float e = half_at(a);
  if constexpr (A::has_sum) return make_float2(e, half_at(a + 2));
  else return make_float2(e, e * counted);
}

// Likewise a block of weights: its scale, and what a sum of activations is multiplied by. An offset goes with the
// stored sums; where there are none it is taken off the quants, which makes no rounding.
template <typename W, typename A>
__device__ __forceinline__ float2 unpack_weights(int* words, const uint8_t* w) {
  constexpr unsigned int taken_off = A::has_sum ? 0 : W::offset * 0x01010101u;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Quants q = W::quants(w, part);
    words[part] = static_cast<int>(__vsub4(q.low, taken_off));
    words[part + 4] = static_cast<int>(__vsub4(q.high, taken_off));
  }
  float d = half_at(w);
  if constexpr (W::has_min) return make_float2(d, half_at(w + 2));
  else return make_float2(d, A::has_sum ? -W::offset * d : 0.0f);
}

__device__ __forceinline__ float2 clear(int* words) {
#pragma unroll
  for (int word = 0; word < 8; ++word) words[word] = 0;
  return make_float2(0.0f, 0.0f);
}

// Each thread unpacks whole blocks, threads side by side those of one row. What lies behind the matrices becomes zeros,
// which add nothing.
template <typename W, typename A>
__device__ void stage(Tile& tile, const uint8_t* w, const uint8_t* a, int rows, int columns, int blocks, int begin) {
  for (int task = threadIdx.x; task < ROWS * DEPTH; task += THREADS) {
    int row = task / DEPTH, k = task % DEPTH;
    int* words = &tile.weights[row][8 * k];
    if (row < rows && begin + k < blocks)
      tile.weight_scales[k][row] =
          unpack_weights<W, A>(words, w + (static_cast<int64_t>(row) * blocks + begin + k) * W::bytes);
    else
      tile.weight_scales[k][row] = clear(words);
  }
  for (int task = threadIdx.x; task < COLUMNS * DEPTH; task += THREADS) {
    int column = task / DEPTH, k = task % DEPTH;
    int* words = &tile.activations[column][8 * k];
    if (column < columns && begin + k < blocks)
      tile.activation_scales[k][column] =
          unpack_activations<A>(words, a + (static_cast<int64_t>(column) * blocks + begin + k) * A::bytes);
    else
      tile.activation_scales[k][column] = clear(words);
  }
}

// Adds the products of the tile's k-th blocks to a thread's outputs: in integers, then scaled.
__device__ __forceinline__ void multiply(float (&sums)[COLUMNS / Y][ROWS / X], const Tile& tile, int k, int x, int y) {
  int dots[COLUMNS / Y][ROWS / X] = {};
#pragma unroll
  for (int word = 8 * k; word < 8 * k + 8; ++word)
#pragma unroll
    for (int j = 0; j < COLUMNS / Y; ++j)
#pragma unroll
      for (int i = 0; i < ROWS / X; ++i)
        dots[j][i] = __dp4a(tile.weights[x + i * X][word], tile.activations[y + j * Y][word], dots[j][i]);
#pragma unroll
  for (int j = 0; j < COLUMNS / Y; ++j)
#pragma unroll
    for (int i = 0; i < ROWS / X; ++i) {
      float2 d = tile.weight_scales[k][x + i * X], e = tile.activation_scales[k][y + j * Y];
      sums[j][i] += d.x * e.x * dots[j][i] + d.y * e.y;
    }
}

__device__ __forceinline__ void store(float* out, const float (&sums)[COLUMNS / Y][ROWS / X], int m, int rows,
                                      int columns, int x, int y) {
#pragma unroll
  for (int j = 0; j < COLUMNS / Y; ++j)
#pragma unroll
    for (int i = 0; i < ROWS / X; ++i)
      if (x + i * X < rows && y + j * Y < columns) out[static_cast<int64_t>(y + j * Y) * m + x + i * X] = sums[j][i];
}

template <typename W, typename A>
__global__ void __launch_bounds__(THREADS)
qgemm(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int n, int blocks) {
  __shared__ Tile tiles[2];
  int row = blockIdx.x * ROWS, column = blockIdx.y * COLUMNS, x = threadIdx.x % X, y = threadIdx.x / X;
  w += static_cast<int64_t>(row) * blocks * W::bytes;
  a += static_cast<int64_t>(column) * blocks * A::bytes;
  float sums[COLUMNS / Y][ROWS / X] = {};
  stage<W, A>(tiles[0], w, a, m - row, n - column, blocks, 0);
  for (int begin = 0, now = 0; begin < blocks; begin += DEPTH, now ^= 1) {
    __syncthreads();  // this tile is filled, and nobody reads the other one any more
    if (begin + DEPTH < blocks) stage<W, A>(tiles[now ^ 1], w, a, m - row, n - column, blocks, begin + DEPTH);
    for (int k = 0; k < DEPTH; ++k) multiply(sums, tiles[now], k, x, y);
  }
  store(out + static_cast<int64_t>(column) * m + row, sums, m, m - row, n - column, x, y);
}
