/*
Product of packed weights and packed activations on tensor cores, block by block in integers.

Four warps make 32 by 32 outputs. A block of the format is 32 deep, two products of 16 by 16 by 16 bytes: these give the
integer part of one block exactly, which then has to be scaled by that block's own scales before it is added. CUDA does
not say where in a fragment an element lies, so the integers go through shared memory on their way to the lanes.

---
op = "qgemm"
entry = "qgemm<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "n", "blocks"]
dims = { m = "w.shape[0]", n = "a.shape[0]", blocks = "a.shape[1] // (34 + 2 * (activations == 'q8_1'))" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0", "n <= 2097120"]
grid = ["ceil_div(m, 32)", "ceil_div(n, 32)"]
block = 128
---
*/
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

using namespace nvcuda;

constexpr int SIDE = 32;                 // rows of weights, and of activations, of a tile
constexpr int WARPS = 4, THREADS = 128;  // each warp has 16 by 16 outputs, each lane 8 of them

// Elements 0 to 15 and 16 to 31 of each row: squares of 16 by 16, as the tensor cores take them.
struct __align__(32) Tile {
  int8_t weights[2][SIDE][16], activations[2][SIDE][16];
  int dots[WARPS][16][16];
  float2 weight_scales[SIDE], activation_scales[SIDE];
};

// Unpacks one block into two rows of 16 bytes. Returns its scale and what the sum of its elements is worth: the stored
// one in blocks that have it, else that of the quants, which float holds exactly.
template <typename A>
__device__ __forceinline__ float2 unpack_activations(int* low, int* high, const uint8_t* a) {
  int counted = 0;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Quants p = A::quants(a, part);
    low[part] = p.low;
    high[part] = p.high;
    if constexpr (!A::has_sum) counted = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, counted));
  }
  float e = half_at(a);
  if constexpr (A::has_sum) return make_float2(e, half_at(a + 2));
  else return make_float2(e, e * counted);
}

// Likewise a block of weights: its scale, and what a sum of activations is multiplied by. An offset goes with the
// stored sums; where there are none it is taken off the quants, which makes no rounding.
template <typename W, typename A>
__device__ __forceinline__ float2 unpack_weights(int* low, int* high, const uint8_t* w) {
  constexpr unsigned int taken_off = A::has_sum ? 0 : W::offset * 0x01010101u;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Quants q = W::quants(w, part);
    low[part] = static_cast<int>(__vsub4(q.low, taken_off));
    high[part] = static_cast<int>(__vsub4(q.high, taken_off));
  }
  float d = half_at(w);
  if constexpr (W::has_min) return make_float2(d, half_at(w + 2));
  else return make_float2(d, A::has_sum ? -W::offset * d : 0.0f);
}

__device__ __forceinline__ float2 clear(int* low, int* high) {
#pragma unroll
  for (int word = 0; word < 4; ++word) low[word] = high[word] = 0;
  return make_float2(0.0f, 0.0f);
}

// A thread unpacks one block of weights or of activations, if it is one of the first 64. What lies behind the matrices
// becomes zeros, which add nothing.
template <typename W, typename A>
__device__ void stage(Tile& tile, const uint8_t* w, const uint8_t* a, int rows, int columns, int blocks, int b) {
  int row = threadIdx.x % SIDE;
  int64_t block = static_cast<int64_t>(row) * blocks + b;
  if (threadIdx.x / SIDE == 0) {
    int *low = reinterpret_cast<int*>(tile.weights[0][row]), *high = reinterpret_cast<int*>(tile.weights[1][row]);
    tile.weight_scales[row] = row < rows ? unpack_weights<W, A>(low, high, w + block * W::bytes) : clear(low, high);
  } else if (threadIdx.x / SIDE == 1) {
    int* low = reinterpret_cast<int*>(tile.activations[0][row]);
    int* high = reinterpret_cast<int*>(tile.activations[1][row]);
    tile.activation_scales[row] =
        row < columns ? unpack_activations<A>(low, high, a + block * A::bytes) : clear(low, high);
  }
}

// The integer products of 16 rows of activations and 16 rows of weights, over the 32 elements of their blocks.
__device__ void multiply(Tile& tile, int warp, int row, int column) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> q;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> dots;
  wmma::fill_fragment(dots, 0);
  for (int half = 0; half < 2; ++half) {
    wmma::load_matrix_sync(p, tile.activations[half][column], 16);
    wmma::load_matrix_sync(q, tile.weights[half][row], 16);
    wmma::mma_sync(dots, p, q, dots);
  }
  wmma::store_matrix_sync(&tile.dots[warp][0][0], dots, 16, wmma::mem_row_major);
  __syncwarp();
}

template <typename W, typename A>
__global__ void __launch_bounds__(THREADS)
qgemm(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int n, int blocks) {
  __shared__ Tile tile;
  int first_row = blockIdx.x * SIDE, first_column = blockIdx.y * SIDE, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int row = warp % 2 * 16, column = warp / 2 * 16, x = lane % 16, y = lane / 16;  // outputs x and y, y + 2, y + 4, ...
  w += static_cast<int64_t>(first_row) * blocks * W::bytes;
  a += static_cast<int64_t>(first_column) * blocks * A::bytes;
  float sums[8] = {};
  for (int b = 0; b < blocks; ++b) {
    stage<W, A>(tile, w, a, m - first_row, n - first_column, blocks, b);
    __syncthreads();
    multiply(tile, warp, row, column);
    float2 d = tile.weight_scales[row + x];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float2 e = tile.activation_scales[column + y + 2 * k];
      sums[k] += d.x * e.x * tile.dots[warp][y + 2 * k][x] + d.y * e.y;
    }
    __syncthreads();
  }
  int i = first_row + row + x;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    int j = first_column + column + y + 2 * k;
    if (i < m && j < n) out[static_cast<int64_t>(j) * m + i] = sums[k];
  }
}
