/*
Product of packed weights and packed activations, one thread an output.

The plainest kernel there is: threads side by side have rows of weights side by side and the same activations. Each
block is multiplied in integers, four elements at a time; its scales come in once.

---
op = "qgemm"
entry = "qgemm<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "n", "blocks"]
dims = { m = "w.shape[0]", n = "a.shape[0]", blocks = "a.shape[1] // (34 + 2 * (activations == 'q8_1'))" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0", "n <= 262140"]
grid = ["ceil_div(m, 32)", "ceil_div(n, 4)"]
block = [32, 4]
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/packed_formats.cuh"

// What two blocks add. The sum of the activations makes up for the weights' offset or min: the stored one in blocks
// that have it, else that of the quants.
template <typename W, typename A>
__device__ __forceinline__ float product(const uint8_t* w, const uint8_t* a) {
  int dot = 0, counted = 0;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    Quants q = W::quants(w, part), p = A::quants(a, part);
    dot = __dp4a(q.low, p.low, __dp4a(q.high, p.high, dot));
    if constexpr (!A::has_sum) counted = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, counted));
  }
  float d = half_at(w), e = half_at(a), m = 0.0f;
  if constexpr (W::has_min) m = half_at(w + 2);
  if constexpr (A::has_sum) {
    float s = half_at(a + 2);
    return d * (e * dot - W::offset * s) + m * s;
  } else {
    return e * (d * (dot - W::offset * counted) + m * counted);
  }
}

template <typename W, typename A>
__global__ void qgemm(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m,
                      int n, int blocks) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= m || j >= n) return;
  const uint8_t* weights = w + static_cast<int64_t>(i) * blocks * W::bytes;
  const uint8_t* activations = a + static_cast<int64_t>(j) * blocks * A::bytes;
  float sum = 0.0f;
  for (int b = 0; b < blocks; ++b) sum += product<W, A>(weights + b * W::bytes, activations + b * A::bytes);
  out[static_cast<int64_t>(j) * m + i] = sum;
}
