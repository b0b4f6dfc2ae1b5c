/*
Numbers out of packed blocks, eight elements a thread, read and written as words.

A thread takes a part of a block, a quarter: elements 4 part to 4 part + 3, and the four that are 16 further on, since
they share their bytes with them in formats of 4 and 5 bits. It writes them as two vectors of four. Blocks of 18, 22
and 34 bytes are aligned to 2 bytes only, so words are put together from halves.

---
op = "dequantize"
entry = "dequantize<{format}, {to}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"], to = ["float32", "float16", "bfloat16"] }
dtypes = ["uint8"]
args = ["out", "w", "parts"]
dims = { parts = "out.size // 8" }
requires = ["w.address % 4 == 0", "out.address % 16 == 0"]
grid = "ceil_div(parts, 128)"
block = 128
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "../include/half_at.cuh"

__device__ __forceinline__ uint32_t word_at(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Four bytes of a block of 18, 22 or 34 bytes, which is aligned to 2 bytes only.
__device__ __forceinline__ uint32_t split_word_at(const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
  return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}

// Quants of four elements each, one a byte; `high` is 16 elements behind `low`.
struct Quants {
  uint32_t low, high;
};

__device__ __forceinline__ Quants nibbles(uint32_t word) { return {word & 0x0f0f0f0f, word >> 4 & 0x0f0f0f0f}; }

// The lowest four bits as the fifth bits of four bytes: the products lie side by side, so nothing is carried.
__device__ __forceinline__ uint32_t spread(uint32_t bits) { return ((bits & 15) * 0x00204081 & 0x01010101) << 4; }

__device__ __forceinline__ Quants five_bits(uint32_t fifth, uint32_t word, int part) {
  Quants q = nibbles(word);
  return {q.low | spread(fifth >> 4 * part), q.high | spread(fifth >> (4 * part + 16))};
}

struct q4_0 {
  static constexpr int bytes = 18, offset = 8;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return nibbles(split_word_at(block + 2 + 4 * part));
  }
};

struct q4_1 {
  static constexpr int bytes = 20, offset = 0;
  static constexpr bool has_min = true;
  static __device__ Quants quants(const uint8_t* block, int part) { return nibbles(word_at(block + 4 + 4 * part)); }
};

struct q5_0 {
  static constexpr int bytes = 22, offset = 16;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return five_bits(split_word_at(block + 2), split_word_at(block + 6 + 4 * part), part);
  }
};

struct q5_1 {
  static constexpr int bytes = 24, offset = 0;
  static constexpr bool has_min = true;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return five_bits(word_at(block + 4), word_at(block + 8 + 4 * part), part);
  }
};

struct q8_0 {
  static constexpr int bytes = 34, offset = 0;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return {split_word_at(block + 2 + 4 * part), split_word_at(block + 18 + 4 * part)};
  }
};

struct q8_1 {
  static constexpr int bytes = 36, offset = 0;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return {word_at(block + 4 + 4 * part), word_at(block + 20 + 4 * part)};
  }
};

// Four of a block's elements.
template <typename Format>
__device__ __forceinline__ float4 values(const uint8_t* block, uint32_t quants) {
  float d = half_at(block), v[4];
  for (int k = 0; k < 4; ++k) {
    v[k] = d * (static_cast<int8_t>(quants >> 8 * k) - Format::offset);
    if constexpr (Format::has_min) v[k] += half_at(block + 2);
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

__device__ __forceinline__ void store(float* out, float4 v) { *reinterpret_cast<float4*>(out) = v; }

__device__ __forceinline__ void store(__half* out, float4 v) {
  *reinterpret_cast<ushort4*>(out) =
      make_ushort4(__half_as_ushort(__float2half_rn(v.x)), __half_as_ushort(__float2half_rn(v.y)),
                   __half_as_ushort(__float2half_rn(v.z)), __half_as_ushort(__float2half_rn(v.w)));
}

__device__ __forceinline__ void store(__nv_bfloat16* out, float4 v) {
  *reinterpret_cast<ushort4*>(out) =
      make_ushort4(__bfloat16_as_ushort(__float2bfloat16_rn(v.x)), __bfloat16_as_ushort(__float2bfloat16_rn(v.y)),
                   __bfloat16_as_ushort(__float2bfloat16_rn(v.z)), __bfloat16_as_ushort(__float2bfloat16_rn(v.w)));
}

template <typename Format, typename To>
__global__ void dequantize(To* __restrict__ out, const uint8_t* __restrict__ w, int64_t parts) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= parts) return;
  int part = static_cast<int>(i % 4);
  const uint8_t* block = w + i / 4 * Format::bytes;
  Quants q = Format::quants(block, part);
  To* first = out + i / 4 * 32 + 4 * part;
  store(first, values<Format>(block, q.low));
  store(first + 16, values<Format>(block, q.high));
}
