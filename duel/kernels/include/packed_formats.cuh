// Blocks of packed weights and activations, as words for dp4a: four quants a word, one a byte.
#pragma once
#include "half_at.cuh"

__device__ __forceinline__ int word_at(const uint8_t* p) { return *reinterpret_cast<const int*>(p); }

// Four bytes of a block of 18, 22 or 34 bytes, which is aligned to 2 bytes only.
__device__ __forceinline__ int split_word_at(const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
  return static_cast<int>(halves[0] | static_cast<unsigned int>(halves[1]) << 16);
}

// Quants of four elements each, one a byte; `high` is 16 elements behind `low`.
struct __align__(8) Quants {
  int low, high;
};

__device__ __forceinline__ Quants nibbles(int word) { return {word & 0x0f0f0f0f, word >> 4 & 0x0f0f0f0f}; }

// The lowest four bits as the fifth bits of four bytes: the products lie side by side, so nothing is carried.
__device__ __forceinline__ int spread(int bits) { return ((bits & 15) * 0x00204081 & 0x01010101) << 4; }

__device__ __forceinline__ Quants five_bits(int fifth, int word, int part) {
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
  static constexpr bool has_min = false, has_sum = false;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return {split_word_at(block + 2 + 4 * part), split_word_at(block + 18 + 4 * part)};
  }
};

struct q8_1 {
  static constexpr int bytes = 36;
  static constexpr bool has_sum = true;
  static __device__ Quants quants(const uint8_t* block, int part) {
    return {word_at(block + 4 + 4 * part), word_at(block + 20 + 4 * part)};
  }
};
