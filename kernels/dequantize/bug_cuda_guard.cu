/*
Bug: one thread more than there are elements does its work.

Otherwise it is cuda_elements.cu.

---
op = "dequantize"
entry = "dequantize<{format}, {to}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"], to = ["float32", "float16", "bfloat16"] }
dtypes = ["uint8"]
args = ["out", "w", "count"]
dims = { count = "out.size" }
grid = "ceil_div(count, 256)"
block = 256
planted = "out_of_bounds"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(p[0] | p[1] << 8)));
}

// Low nibbles hold elements 0 to 15, high ones 16 to 31.
__device__ int nibble(const uint8_t* quants, int j) { return quants[j % 16] >> j / 16 * 4 & 15; }

// Bit j of four bytes is the fifth bit of element j.
__device__ int fifth_bit(const uint8_t* bits, int j) { return (bits[j / 8] >> j % 8 & 1) << 4; }

struct q4_0 {
  static constexpr int bytes = 18;
  static __device__ float value(const uint8_t* block, int j) { return half_at(block) * (nibble(block + 2, j) - 8); }
};

struct q4_1 {
  static constexpr int bytes = 20;
  static __device__ float value(const uint8_t* block, int j) {
    return half_at(block) * nibble(block + 4, j) + half_at(block + 2);
  }
};

struct q5_0 {
  static constexpr int bytes = 22;
  static __device__ float value(const uint8_t* block, int j) {
    return half_at(block) * ((nibble(block + 6, j) | fifth_bit(block + 2, j)) - 16);
  }
};

struct q5_1 {
  static constexpr int bytes = 24;
  static __device__ float value(const uint8_t* block, int j) {
    return half_at(block) * (nibble(block + 8, j) | fifth_bit(block + 4, j)) + half_at(block + 2);
  }
};

struct q8_0 {
  static constexpr int bytes = 34;
  static __device__ float value(const uint8_t* block, int j) {
    return half_at(block) * static_cast<int8_t>(block[2 + j]);
  }
};

struct q8_1 {
  static constexpr int bytes = 36;
  static __device__ float value(const uint8_t* block, int j) {
    return half_at(block) * static_cast<int8_t>(block[4 + j]);
  }
};

__device__ void store(float* out, float value) { *out = value; }
__device__ void store(__half* out, float value) { *out = __float2half_rn(value); }
__device__ void store(__nv_bfloat16* out, float value) { *out = __float2bfloat16_rn(value); }

template <typename Format, typename To>
__global__ void dequantize(To* __restrict__ out, const uint8_t* __restrict__ w, int64_t count) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i <= count) store(out + i, Format::value(w + i / 32 * Format::bytes, static_cast<int>(i % 32)));
}
