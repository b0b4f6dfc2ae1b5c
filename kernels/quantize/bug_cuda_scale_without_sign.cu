/*
Bug: the largest magnitude is taken without its sign, so that the least quant is never used.

Otherwise it is cuda_warp.cu.

---
op = "quantize"
entry = "quantize<{format}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"] }
args = ["out", "x", "blocks"]
dims = { blocks = "x.size // 32" }
grid = "ceil_div(blocks, 4)"
block = 128
planted = "mismatch"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

constexpr unsigned int ALL = 0xffffffff;

// The largest magnitude.
__device__ float largest(float x) {
  unsigned int magnitude = __float_as_uint(fabsf(x));
  unsigned int most = __reduce_max_sync(ALL, magnitude);
  return __uint_as_float(most);
}

__device__ float least(float x) {
  for (int step = 16; step > 0; step /= 2) x = fminf(x, __shfl_xor_sync(ALL, x, step));
  return x;
}

__device__ float greatest(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
  return x;
}

__device__ float sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(ALL, x, step);
  return x;
}

__device__ float inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// A float16 of two bytes, by two lanes.
__device__ void store_half(uint8_t* out, float value, int lane) {
  if (lane < 2) out[lane] = static_cast<uint8_t>(__half_as_ushort(__float2half_rn(value)) >> 8 * lane);
}

// Lane j has quant j: 0 to 15 become low nibbles, 16 to 31 high ones, behind the 32 fifth bits if there are any.
template <int BITS>
__device__ void store_quants(uint8_t* out, int q, int lane) {
  if constexpr (BITS == 5) {
    unsigned int fifth = __ballot_sync(ALL, q & 16);
    if (lane < 4) out[lane] = static_cast<uint8_t>(fifth >> 8 * lane);
    out += 4;
  }
  int high = __shfl_down_sync(ALL, q, 16);
  if (lane < 16) out[lane] = static_cast<uint8_t>((q & 15) | (high & 15) << 4);
}

// The number of the largest magnitude becomes the least quant.
template <int BITS>
struct WithOffset {
  static constexpr int bytes = BITS == 5 ? 22 : 18, offset = 1 << (BITS - 1);
  static __device__ void pack(uint8_t* out, float x, int lane) {
    float d = largest(x) / -offset;
    int q = min(__float2int_rz(x * inverse(d) + (offset + 0.5f)), 2 * offset - 1);
    store_half(out, d, lane);
    store_quants<BITS>(out + 2, q, lane);
  }
};

// Quants from 0 at the least number on.
template <int BITS>
struct WithMin {
  static constexpr int bytes = BITS == 5 ? 24 : 20, most = (1 << BITS) - 1;
  static __device__ void pack(uint8_t* out, float x, int lane) {
    float m = least(x), d = (greatest(x) - m) / most;
    int q = min(__float2int_rz((x - m) * inverse(d) + 0.5f), most);
    store_half(out, d, lane);
    store_half(out + 2, m, lane);
    store_quants<BITS>(out + 4, q, lane);
  }
};

// The largest magnitude becomes 127.
template <bool SUM>
struct Signed {
  static constexpr int bytes = SUM ? 36 : 34;
  static __device__ void pack(uint8_t* out, float x, int lane) {
    float d = fabsf(largest(x)) / 127.0f;
    store_half(out, d, lane);
    if constexpr (SUM) store_half(out + 2, sum(x), lane);
    out[bytes - 32 + lane] = static_cast<uint8_t>(__float2int_rn(x * inverse(d)));
  }
};

using q4_0 = WithOffset<4>;
using q5_0 = WithOffset<5>;
using q4_1 = WithMin<4>;
using q5_1 = WithMin<5>;
using q8_0 = Signed<false>;
using q8_1 = Signed<true>;

template <typename Format>
__global__ void quantize(uint8_t* __restrict__ out, const float* __restrict__ x, int64_t blocks) {
  int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (block >= blocks) return;  // a whole warp at once
  int lane = threadIdx.x % 32;
  Format::pack(out + block * Format::bytes, x[block * 32 + lane], lane);
}
