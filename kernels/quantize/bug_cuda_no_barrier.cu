/*
Bug: threads pack numbers that others have yet to copy to shared memory, since no barrier stands in between.

Otherwise it is cuda_staged.cu.

---
op = "quantize"
entry = "quantize<{format}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"] }
args = ["out", "x", "blocks"]
dims = { blocks = "x.size // 32" }
requires = ["out.address % 4 == 0"]
grid = "ceil_div(blocks, 64)"
block = 64
planted = "race"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int BLOCKS = 64;  // as many as threads

__device__ float inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// At a multiple of two bytes, as all scales and mins are.
__device__ void store_half(uint8_t* out, float value) { *reinterpret_cast<__half*>(out) = __float2half_rn(value); }

// The numbers j and j + 16 share a byte; the fifth bits of all stand before the nibbles.
template <int BITS, typename Quant>
__device__ void store_quants(uint8_t* out, Quant quant) {
  uint8_t* nibbles = out + (BITS == 5 ? 4 : 0);
  uint32_t fifth = 0;
  for (int j = 0; j < 16; ++j) {
    unsigned int low = quant(j), high = quant(j + 16);
    nibbles[j] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
    fifth |= (low >> 4 & 1) << j | (high >> 4 & 1) << (j + 16);
  }
  if constexpr (BITS == 5)
    for (int k = 0; k < 4; ++k) out[k] = static_cast<uint8_t>(fifth >> 8 * k);
}

// The number of the largest magnitude becomes the least quant.
template <int BITS>
struct WithOffset {
  static constexpr int bytes = BITS == 5 ? 22 : 18, offset = 1 << (BITS - 1);
  static __device__ void pack(uint8_t* out, const float* x) {
    float largest = 0.0f;
    for (int j = 0; j < 32; ++j)
      if (fabsf(x[j]) > fabsf(largest)) largest = x[j];
    float d = largest / -offset, id = inverse(d);
    store_half(out, d);
    store_quants<BITS>(
        out + 2, [=](int j) { return min(__float2int_rz(x[j] * id + (offset + 0.5f)), 2 * offset - 1); });
  }
};

// Quants from 0 at the least number on.
template <int BITS>
struct WithMin {
  static constexpr int bytes = BITS == 5 ? 24 : 20, most = (1 << BITS) - 1;
  static __device__ void pack(uint8_t* out, const float* x) {
    float m = x[0], top = x[0];
    for (int j = 1; j < 32; ++j) {
      m = fminf(m, x[j]);
      top = fmaxf(top, x[j]);
    }
    float d = (top - m) / most, id = inverse(d);
    store_half(out, d);
    store_half(out + 2, m);
    store_quants<BITS>(out + 4, [=](int j) { return min(__float2int_rz((x[j] - m) * id + 0.5f), most); });
  }
};

// The largest magnitude becomes 127.
template <bool SUM>
struct Signed {
  static constexpr int bytes = SUM ? 36 : 34;
  static __device__ void pack(uint8_t* out, const float* x) {
    float most = 0.0f;
    for (int j = 0; j < 32; ++j) most = fmaxf(most, fabsf(x[j]));
    float d = most / 127.0f, id = inverse(d);
    int sum = 0;
    for (int j = 0; j < 32; ++j) {
      int q = __float2int_rn(x[j] * id);
      sum += q;
      out[bytes - 32 + j] = static_cast<uint8_t>(q);
    }
    store_half(out, d);
    if constexpr (SUM) store_half(out + 2, d * sum);
  }
};

using q4_0 = WithOffset<4>;
using q5_0 = WithOffset<5>;
using q4_1 = WithMin<4>;
using q5_1 = WithMin<5>;
using q8_0 = Signed<false>;
using q8_1 = Signed<true>;

template <typename Format>
__global__ void __launch_bounds__(BLOCKS)
quantize(uint8_t* __restrict__ out, const float* __restrict__ x, int64_t blocks) {
  __shared__ float numbers[BLOCKS][33];
  __shared__ uint32_t packed[BLOCKS * Format::bytes / 4];
  int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCKS;
  int count = static_cast<int>(min(blocks - first, static_cast<int64_t>(BLOCKS))), thread = threadIdx.x;
  for (int i = thread; i < count * 32; i += BLOCKS) numbers[i / 32][i % 32] = x[first * 32 + i];
  uint8_t* bytes = reinterpret_cast<uint8_t*>(packed);
  if (thread < count) Format::pack(bytes + thread * Format::bytes, numbers[thread]);
  __syncthreads();
  out += first * Format::bytes;
  int total = count * Format::bytes;
  for (int i = thread; i < total / 4; i += BLOCKS) reinterpret_cast<uint32_t*>(out)[i] = packed[i];
  for (int i = total / 4 * 4 + thread; i < total; i += BLOCKS) out[i] = bytes[i];
}
