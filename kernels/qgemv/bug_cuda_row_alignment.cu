/*
Bug: where the matrix begins at a multiple of 16 bytes, all its rows are taken to do so.

Otherwise it is cuda_fast.cu.

---
op = "qgemv"
entry = "qgemv"
choices = { format = ["q4_0"], activations = ["q8_1"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "blocks"]
requires = ["w.address % 2 == 0", "a.address % 4 == 0"]
grid = "ceil_div(m, rows)"
block = "threads"
shared = "stages * (144 * threads + 16 * rows + 288 * (threads // rows))"
planted = "crashed"

[dims]
m = "w.shape[0]"
blocks = "a.size // 36"
rows = 32
threads = 256
stages = 4
---
*/
#include "../qgemm/periods.cuh"

constexpr int ROWS = 32, THREADS = 256, STAGES = 4;  // as rows, threads and stages above
constexpr int PERIODS = THREADS / ROWS;              // of a chunk
constexpr int PITCH = PERIODS * W_PERIOD + 16;       // from row to row: eight lanes' vectors lie in different banks
constexpr int STAGE = ROWS * PITCH + PERIODS * A_PERIOD;

__device__ __forceinline__ bool wide(const uint8_t* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Four blocks at a time: the second four begin in the middle of a vector.
__device__ __forceinline__ float multiply(const uint8_t* w, const uint8_t* a, float sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned int weights[20], activations[36];
    load<5>(weights, w + half * 64);
    load<9>(activations, a + half * A_PERIOD / 2);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sum = product(unpack(weights + 2 * half + 9 * i / 2, i % 2 == 1), activations + 9 * i, sum);
  }
  return sum;
}

__global__ void __launch_bounds__(THREADS, 1)
qgemv(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int blocks) {
  extern __shared__ __align__(16) uint8_t stages[];
  constexpr int share = THREADS / ROWS, w_chunk = PERIODS * W_PERIOD, a_chunk = PERIODS * A_PERIOD;
  int thread = threadIdx.x, first = blockIdx.x * ROWS, row_bytes = 18 * blocks;
  bool wide_w = wide(w), wide_a = wide(a);
  int chunks = (blocks + 8 * PERIODS - 1) / (8 * PERIODS);
  int copied = thread / share;  // the row that this thread copies a part of; behind the last one it is copied again
  const uint8_t* from = w + static_cast<int64_t>(min(first + copied, m - 1)) * row_bytes;

  auto fill = [&](int chunk) {
    if (chunk < chunks) {
      uint8_t* to = stages + chunk % STAGES * STAGE;
      uint8_t *to_w = to + copied * PITCH, *to_a = to + ROWS * PITCH;
      const uint8_t *from_w = from + chunk * w_chunk, *from_a = a + chunk * a_chunk;
      int there_w = row_bytes - chunk * w_chunk, there_a = 36 * blocks - chunk * a_chunk;
      if (wide_w) copy<uint4, w_chunk, share>(to_w, from_w, there_w, thread % share);
      else copy<unsigned short, w_chunk, share>(to_w, from_w, there_w, thread % share);
      if (wide_a) copy<uint4, a_chunk, THREADS>(to_a, from_a, there_a, thread);
      else copy<unsigned int, a_chunk, THREADS>(to_a, from_a, there_a, thread);
    }
    __pipeline_commit();  // of nothing, too: then it is always the same number that may be on their way
  };

  for (int chunk = 0; chunk < STAGES - 1; ++chunk) fill(chunk);
  int row = thread % ROWS, period = thread / ROWS;
  float sum = 0.0f;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();  // this chunk is there, and nobody reads the one before it any more
    fill(chunk + STAGES - 1);
    const uint8_t* stage = stages + chunk % STAGES * STAGE;
    sum = multiply(stage + row * PITCH + period * W_PERIOD, stage + ROWS * PITCH + period * A_PERIOD, sum);
  }
  __syncthreads();  // all is read: the sums take its place
  float* sums = reinterpret_cast<float*>(stages);
  sums[thread] = sum;
  __syncthreads();
  if (thread >= ROWS || first + thread >= m) return;
#pragma unroll
  for (int i = 1; i < PERIODS; ++i) sum += sums[i * ROWS + thread];
  out[first + thread] = sum;
}
