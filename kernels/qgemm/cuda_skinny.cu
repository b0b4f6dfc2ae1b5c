/*
Product of q4_0 weights and few rows of q8_1 activations, which come through shared memory in vectors of 16 bytes.

Eight blocks of 18 bytes are nine vectors, a period. A block of threads has 32 rows of weights and up to eight of
activations: a lane of each warp has a row of weights, and each warp another period, so that all its lanes need the same
activations and no sum has to cross lanes. What a thread has unpacked it uses for every row of activations. A chunk,
which is a period for each warp, is multiplied while the next is on its way by copies in the background. In the end the
warps' sums are added. Rows that do not begin at a multiple of 16 bytes are copied two or four bytes at a time.

---
op = "qgemm"
entry = "qgemm"
choices = { format = ["q4_0"], activations = ["q8_1"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "n", "blocks"]
requires = ["w.address % 2 == 0", "a.address % 4 == 0", "n <= 524280"]
grid = ["ceil_div(m, rows)", "ceil_div(n, 8)"]
block = "threads"
shared = "stages * (144 * threads * each + 16 * rows + 288 * columns * (threads * each // rows))"

[dims]
m = "w.shape[0]"
n = "a.shape[0]"
blocks = "a.shape[1] // 36"
columns = "1 + (n > 1) + 2 * (n > 2) + 4 * (n > 4)"
rows = 32
threads = 256
each = 1
deep = 3
stages = "deep - (deep - 2) * (columns > 4)"
---
*/
#include "periods.cuh"

constexpr int ROWS = 32, THREADS = 256, EACH = 1;  // as rows, threads and each above: a thread has EACH rows
constexpr int DEEP = 3;                            // as deep above: chunks in memory, if columns are few
constexpr int ACROSS = ROWS / EACH;                // threads that share the rows
constexpr int PERIODS = THREADS / ACROSS;          // of a chunk
constexpr int PITCH = PERIODS * W_PERIOD + 16;     // from row to row: eight lanes' vectors lie in different banks

// Four blocks at a time: the second four begin in the middle of a vector.
template <int N>
__device__ __forceinline__ void multiply(float (&sums)[EACH][N], const uint8_t* w, const uint8_t* a) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Block blocks[EACH][4];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      unsigned int words[20];
      load<5>(words, w + e * ACROSS * PITCH + half * 64);
#pragma unroll
      for (int i = 0; i < 4; ++i) blocks[e][i] = unpack(words + 2 * half + 9 * i / 2, i % 2 == 1);
    }
#pragma unroll
    for (int c = 0; c < N; ++c) {
      unsigned int words[36];
      load<9>(words, a + c * PERIODS * A_PERIOD + half * A_PERIOD / 2);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < EACH; ++e) sums[e][c] = product(blocks[e][i], words + 9 * i, sums[e][c]);
    }
  }
}

// Adds what the threads have of each output, N columns of ROWS, in the same order always.
template <int N>
__device__ __forceinline__ void add(float* out, const float (&sums)[EACH][N], float* parts, int m, int rows,
                                    int columns) {
  int thread = threadIdx.x;
#pragma unroll
  for (int e = 0; e < EACH; ++e)
#pragma unroll
    for (int c = 0; c < N; ++c)
      parts[(thread / ACROSS * N + c) * ROWS + e * ACROSS + thread % ACROSS] = sums[e][c];
  __syncthreads();
  for (int i = thread; i < N * ROWS; i += THREADS) {
    float sum = 0.0f;
#pragma unroll
    for (int period = 0; period < PERIODS; ++period) sum += parts[period * N * ROWS + i];
    if (i % ROWS < rows && i / ROWS < columns) out[static_cast<int64_t>(i / ROWS) * m + i % ROWS] = sum;
  }
}

// The outputs of a block of threads, as if there were N columns: behind the last one it is computed again, not written.
template <int N>
__device__ __forceinline__ void block_of(float* out, const uint8_t* w, const uint8_t* a, int m, int rows, int columns,
                                         int blocks) {
  extern __shared__ __align__(16) uint8_t stages[];
  constexpr int STAGES = N > 4 ? 2 : DEEP, STAGE = ROWS * PITCH + N * PERIODS * A_PERIOD;
  constexpr int w_chunk = PERIODS * W_PERIOD, a_chunk = PERIODS * A_PERIOD;
  constexpr int w_share = THREADS / ROWS, a_share = THREADS / N;  // threads that copy one row
  int thread = threadIdx.x, row_bytes = 18 * blocks, column_bytes = 36 * blocks;
  bool wide_w = wide(w, row_bytes), wide_a = wide(a, column_bytes);
  int chunks = (blocks + 8 * PERIODS - 1) / (8 * PERIODS);
  int row = thread / w_share, column = thread / a_share;
  w += static_cast<int64_t>(min(row, rows - 1)) * row_bytes;
  a += static_cast<int64_t>(min(column, columns - 1)) * column_bytes;

  auto fill = [&](int chunk) {
    if (chunk < chunks) {
      uint8_t* to = stages + chunk % STAGES * STAGE;
      uint8_t *to_w = to + row * PITCH, *to_a = to + ROWS * PITCH + column * a_chunk;
      const uint8_t *from_w = w + chunk * w_chunk, *from_a = a + chunk * a_chunk;
      int there_w = row_bytes - chunk * w_chunk, there_a = column_bytes - chunk * a_chunk;
      if (wide_w) copy<uint4, w_chunk, w_share>(to_w, from_w, there_w, thread % w_share);
      else copy<unsigned short, w_chunk, w_share>(to_w, from_w, there_w, thread % w_share);
      if (wide_a) copy<uint4, a_chunk, a_share>(to_a, from_a, there_a, thread % a_share);
      else copy<unsigned int, a_chunk, a_share>(to_a, from_a, there_a, thread % a_share);
    }
    __pipeline_commit();  // of nothing, too: then it is always the same number that may be on their way
  };

  for (int chunk = 0; chunk < STAGES - 1; ++chunk) fill(chunk);
  int lane = thread % ACROSS, period = thread / ACROSS;
  float sums[EACH][N] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();  // this chunk is there, and nobody reads the one before it any more
    fill(chunk + STAGES - 1);
    const uint8_t* stage = stages + chunk % STAGES * STAGE;
    multiply<N>(sums, stage + lane * PITCH + period * W_PERIOD, stage + ROWS * PITCH + period * A_PERIOD);
  }
  __syncthreads();  // all is read: the sums take its place
  add<N>(out, sums, reinterpret_cast<float*>(stages), m, rows, columns);
}

__global__ void __launch_bounds__(THREADS, 1)
qgemm(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int n, int blocks) {
  int row = blockIdx.x * ROWS, column = blockIdx.y * 8, rows = min(m - row, ROWS), columns = min(n - column, 8);
  out += static_cast<int64_t>(column) * m + row;
  w += static_cast<int64_t>(row) * blocks * 18;
  a += static_cast<int64_t>(column) * blocks * 36;
  if (n > 4) block_of<8>(out, w, a, m, rows, columns, blocks);
  else if (n > 2) block_of<4>(out, w, a, m, rows, columns, blocks);
  else if (n > 1) block_of<2>(out, w, a, m, rows, columns, blocks);
  else block_of<1>(out, w, a, m, rows, columns, blocks);
}
