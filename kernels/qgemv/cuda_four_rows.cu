/*
Product of packed weights and a row of packed activations, four rows a warp.

What a lane reads of the activations it uses four times, from registers, and four loads of weights are under way at
once. Four lanes share a block, and each takes a part of it: the elements 4 part to 4 part + 3 and those 16 further on.
Rows behind the last one are computed as copies of it and not written.

---
op = "qgemv"
entry = "qgemv<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "row_bytes"]
dims = { m = "w.shape[0]", row_bytes = "w.shape[1]" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0"]
grid = "ceil_div(m, 16)"
block = 128
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

constexpr int ROWS = 4;

// Activations as they wait in registers: a part of a block, its scale, and its share of the block's sum.
struct Activations {
  Quants p;
  float e, stored;
  int counted;
};

template <typename A>
__device__ __forceinline__ Activations load(const uint8_t* a, int part) {
  Activations x = {A::quants(a, part), half_at(a), 0.0f, 0};
  if constexpr (A::has_sum) x.stored = 0.25f * half_at(a + 2);
  else x.counted = __dp4a(0x01010101, x.p.low, __dp4a(0x01010101, x.p.high, 0));
  return x;
}

// What a part of two blocks adds. The sum of the activations makes up for the weights' offset or min: the stored one in
// blocks that have it, else that of the quants.
template <typename W, typename A>
__device__ __forceinline__ float product(const uint8_t* w, const Activations& x, int part) {
  Quants q = W::quants(w, part);
  int dot = __dp4a(q.low, x.p.low, __dp4a(q.high, x.p.high, 0));
  float d = half_at(w), m = 0.0f;
  if constexpr (W::has_min) m = half_at(w + 2);
  if constexpr (A::has_sum) return d * (x.e * dot - W::offset * x.stored) + m * x.stored;
  else return x.e * (d * (dot - W::offset * x.counted) + m * x.counted);
}

template <typename W, typename A>
__global__ void qgemv(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m,
                      int row_bytes) {
  int first = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS, lane = threadIdx.x % 32, part = lane % 4;
  if (first >= m) return;  // a whole warp at once
  const uint8_t* weights[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) weights[r] = w + static_cast<int64_t>(min(first + r, m - 1)) * row_bytes;
  int blocks = row_bytes / W::bytes;
  float sums[ROWS] = {};
  for (int b = lane / 4; b < blocks; b += 8) {
    Activations x = load<A>(a + b * A::bytes, part);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] += product<W, A>(weights[r] + b * W::bytes, x, part);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(0xffffffff, sums[r], step);
    if (lane == 0 && first + r < m) out[first + r] = sums[r];
  }
}
