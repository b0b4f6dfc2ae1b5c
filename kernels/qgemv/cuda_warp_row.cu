/*
Product of packed weights and a row of packed activations, one warp a row.

Four lanes share a block: each takes a part, the elements 4 part to 4 part + 3 and those 16 further on, which in formats
of 4 and 5 bits lie in the same bytes. Two dp4a multiply the eight pairs in integers; scales come in once a part. The
warp reads eight blocks at a time, side by side, and adds up its lanes by shuffles.

---
op = "qgemv"
entry = "qgemv<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "row_bytes"]
dims = { m = "w.shape[0]", row_bytes = "w.shape[1]" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0"]
grid = "ceil_div(m, 4)"
block = 128
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

// What a part of two blocks adds. The sum of the activations makes up for the weights' offset or min; blocks of q8_1
// have it stored, and a quarter of it is a part's share.
template <typename W, typename A>
__device__ __forceinline__ float product(const uint8_t* w, const uint8_t* a, int part) {
  Quants q = W::quants(w, part), p = A::quants(a, part);
  int dot = __dp4a(q.low, p.low, __dp4a(q.high, p.high, 0));
  float d = half_at(w), e = half_at(a), m = 0.0f;
  if constexpr (W::has_min) m = half_at(w + 2);
  if constexpr (A::has_sum) {
    float s = 0.25f * half_at(a + 2);
    return d * (e * dot - W::offset * s) + m * s;
  } else {
    int s = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, 0));
    return e * (d * (dot - W::offset * s) + m * s);
  }
}

template <typename W, typename A>
__global__ void qgemv(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m,
                      int row_bytes) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= m) return;  // a whole warp at once
  const uint8_t* weights = w + static_cast<int64_t>(row) * row_bytes;
  int blocks = row_bytes / W::bytes;
  float sum = 0.0f;
  for (int b = lane / 4; b < blocks; b += 8)
    sum += product<W, A>(weights + b * W::bytes, a + b * A::bytes, lane % 4);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (lane == 0) out[row] = sum;
}
