// Rows of q4_0 and q8_1 blocks through shared memory, in vectors of 16 bytes; qgemv/cuda_fast.cu uses it, too.
#pragma once
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <stdint.h>

constexpr int W_PERIOD = 144, A_PERIOD = 288;  // bytes of eight blocks of weights, of activations: a period

__device__ __forceinline__ bool wide(const uint8_t* p, int row_bytes) {
  return (reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(row_bytes)) % 16 == 0;
}

// Copies BYTES of a row, a T at a time, by one of STEP threads; what lies behind its end becomes zeros.
template <typename T, int BYTES, int STEP>
__device__ __forceinline__ void copy(uint8_t* to, const uint8_t* from, int there, int thread) {
  constexpr int size = sizeof(T);
#pragma unroll 9
  for (int i = 0; i < (BYTES + STEP * size - 1) / (STEP * size); ++i) {
    int at = (i * STEP + thread) * size;
    if (BYTES % (STEP * size) != 0 && at >= BYTES) break;
    T* place = reinterpret_cast<T*>(to + at);
    if (at >= there) *place = T{};
    else if constexpr (size >= 4) __pipeline_memcpy_async(place, from + at, size);
    else *place = *reinterpret_cast<const T*>(from + at);
  }
}

template <int VECTORS>
__device__ __forceinline__ void load(unsigned int (&words)[4 * VECTORS], const uint8_t* from) {
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    uint4 v = reinterpret_cast<const uint4*>(from)[i];
    words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
  }
}

__device__ __forceinline__ float half_of(unsigned int word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
}

// A block of weights: its scale, and its quants, one a byte; `high` is 16 elements behind `low`.
struct Block {
  float d;
  int low[4], high[4];
};

// Blocks begin in the middle of a word, and then their quants at its end, or the other way round.
__device__ __forceinline__ Block unpack(const unsigned int* words, bool middle) {
  Block block;
  block.d = half_of(middle ? words[0] >> 16 : words[0]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned int quants = middle ? words[i + 1] : __byte_perm(words[i], words[i + 1], 0x5432);
    block.low[i] = static_cast<int>(quants & 0x0f0f0f0f), block.high[i] = static_cast<int>(quants >> 4 & 0x0f0f0f0f);
  }
  return block;
}

// What two blocks add. The stored sum of the activations makes up for the weights' offset of 8.
__device__ __forceinline__ float product(const Block& w, const unsigned int* a, float sum) {
  int dot = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    dot = __dp4a(w.low[i], static_cast<int>(a[1 + i]), dot);
    dot = __dp4a(w.high[i], static_cast<int>(a[5 + i]), dot);
  }
  return sum + w.d * (half_of(a[0]) * static_cast<float>(dot) - 8.0f * half_of(a[0] >> 16));
}
