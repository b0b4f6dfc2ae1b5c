/*
Bug: the product is rounded to half precision before the min is added, and the sum once more.

Otherwise it is cuda_half_trick.cu.

---
op = "dequantize"
entry = "dequantize<{format}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1"], to = ["float16"] }
dtypes = ["uint8"]
args = ["out", "w", "parts"]
dims = { parts = "out.size // 8" }
requires = ["w.address % 4 == 0", "out.address % 4 == 0"]
grid = "ceil_div(parts, 128)"
block = 128
planted = "mismatch"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ __half2 twice(const uint8_t* p) {
  return __half2half2(__ushort_as_half(*reinterpret_cast<const uint16_t*>(p)));
}

__device__ __forceinline__ uint32_t word_at(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Four bytes of a block of 18, 22 or 34 bytes, which is aligned to 2 bytes only.
__device__ __forceinline__ uint32_t split_word_at(const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
  return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}

// Quants of four elements each, one a byte and without a sign; `high` is 16 elements behind `low`.
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

// Signed bytes, 128 added.
__device__ __forceinline__ Quants bytes_of(uint32_t low, uint32_t high) {
  return {low ^ 0x80808080, high ^ 0x80808080};
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
  static constexpr int bytes = 34, offset = 128;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return bytes_of(split_word_at(block + 2 + 4 * part), split_word_at(block + 18 + 4 * part));
  }
};

struct q8_1 {
  static constexpr int bytes = 36, offset = 128;
  static constexpr bool has_min = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return bytes_of(word_at(block + 4 + 4 * part), word_at(block + 20 + 4 * part));
  }
};

// 1024 + byte for two bytes of a word; the permutation says which.
__device__ __forceinline__ __half2 above_1024(uint32_t word, uint32_t permutation) {
  uint32_t both = __byte_perm(word, 0x64646464, permutation);
  return __halves2half2(__ushort_as_half(static_cast<unsigned short>(both & 0xffff)),
                        __ushort_as_half(static_cast<unsigned short>(both >> 16)));
}

template <typename Format>
__device__ __forceinline__ __half2 pair(const uint8_t* block, __half2 above) {
  __half2 q = __hsub2(above, __float2half2_rn(1024.0f + Format::offset));
  if constexpr (Format::has_min) return __hadd2_rn(__hmul2_rn(twice(block), q), twice(block + 2));
  return __hmul2(twice(block), q);
}

// Four elements side by side.
template <typename Format>
__device__ __forceinline__ void store(__half* out, const uint8_t* block, uint32_t quants) {
  __half2* pairs = reinterpret_cast<__half2*>(out);
  pairs[0] = pair<Format>(block, above_1024(quants, 0x4140));
  pairs[1] = pair<Format>(block, above_1024(quants, 0x4342));
}

template <typename Format>
__global__ void dequantize(__half* __restrict__ out, const uint8_t* __restrict__ w, int64_t parts) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= parts) return;
  int part = static_cast<int>(i % 4);
  const uint8_t* block = w + i / 4 * Format::bytes;
  Quants q = Format::quants(block, part);
  __half* first = out + i / 4 * 32 + 4 * part;
  store<Format>(first, block, q.low);
  store<Format>(first + 16, block, q.high);
}
