/*
Bug: the block behind the last one of a row is multiplied too.

Otherwise it is cuda_warp_row.cu.

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
planted = "out_of_bounds"
shows = "mismatch"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ float half_at(const uint8_t* p) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(p)));
}

__device__ __forceinline__ int word_at(const uint8_t* p) { return *reinterpret_cast<const int*>(p); }

// Four bytes of a block of 18, 22 or 34 bytes, which is aligned to 2 bytes only.
__device__ __forceinline__ int split_word_at(const uint8_t* p) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
  return static_cast<int>(halves[0] | static_cast<unsigned int>(halves[1]) << 16);
}

// Quants of four elements each, one a byte; `high` is 16 elements behind `low`.
struct Quants {
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
  for (int b = lane / 4; b <= blocks; b += 8)
    sum += product<W, A>(weights + b * W::bytes, a + b * A::bytes, lane % 4);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (lane == 0) out[row] = sum;
}
