/*
Product of packed weights and a row of packed activations, which is unpacked once for 32 rows.

The eight warps of a block unpack the whole row of activations into shared memory, scales as float, quants so that what
four lanes need of a block lies side by side. Then each warp computes four rows, one after the other: four lanes share a
block, and each takes a part of it, the elements 4 part to 4 part + 3 and those 16 further on.

---
op = "qgemv"
entry = "qgemv<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "blocks"]
dims = { m = "w.shape[0]", blocks = "a.size // (34 + 2 * (activations == 'q8_1'))" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0", "40 * blocks <= 49152"]
grid = "ceil_div(m, 32)"
block = 256
shared = "40 * blocks"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

constexpr int WARPS = 8, ROWS = 32;

// The scale of activations, and their sum where it is stored.
template <typename A>
__device__ __forceinline__ float2 scales_of(const uint8_t* a) {
  float2 scales = make_float2(half_at(a), 0.0f);
  if constexpr (A::has_sum) scales.y = half_at(a + 2);
  return scales;
}

// What a part of two blocks adds. The sum of the activations makes up for the weights' offset or min; blocks of q8_1
// have it stored, and a quarter of it is a part's share.
template <typename W, typename A>
__device__ __forceinline__ float product(const uint8_t* w, Quants p, float2 scales, int part) {
  Quants q = W::quants(w, part);
  int dot = __dp4a(q.low, p.low, __dp4a(q.high, p.high, 0));
  float d = half_at(w), e = scales.x, m = 0.0f;
  if constexpr (W::has_min) m = half_at(w + 2);
  if constexpr (A::has_sum) {
    float s = 0.25f * scales.y;
    return d * (e * dot - W::offset * s) + m * s;
  } else {
    int s = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, 0));
    return e * (d * (dot - W::offset * s) + m * s);
  }
}

template <typename W, typename A>
__global__ void __launch_bounds__(32 * WARPS)
qgemv(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int blocks) {
  extern __shared__ Quants parts[];
  float2* scales = reinterpret_cast<float2*>(parts + 4 * blocks);
  int thread = threadIdx.x, lane = thread % 32;
  for (int i = thread; i < 4 * blocks; i += 32 * WARPS) parts[i] = A::quants(a + i / 4 * A::bytes, i % 4);
  for (int b = thread; b < blocks; b += 32 * WARPS) scales[b] = scales_of<A>(a + b * A::bytes);
  __syncthreads();
  int first = blockIdx.x * ROWS, end = min(first + ROWS, m);
  for (int row = first + thread / 32; row < end; row += WARPS) {
    const uint8_t* weights = w + static_cast<int64_t>(row) * blocks * W::bytes;
    float sum = 0.0f;
    for (int b = lane / 4; b < blocks; b += 8)
      sum += product<W, A>(weights + b * W::bytes, parts[4 * b + lane % 4], scales[b], lane % 4);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane == 0) out[row] = sum;
  }
}
