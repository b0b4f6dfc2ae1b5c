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
