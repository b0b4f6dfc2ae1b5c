/*
Bug: as many parts of activations are unpacked as there are blocks, but each block has four.

Otherwise it is cuda_staged.cu.

---
op = "qgemv"
entry = "qgemv<{format}, {activations}>"
choices = { format = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"], activations = ["q8_1", "q8_0"] }
dtypes = ["uint8"]
args = ["out", "w", "a", "m", "blocks"]
dims = { m = "w.shape[0]", blocks = "a.size // (34 + 2 * (activations == 'q8_1'))" }
requires = ["w.address % 4 == 0", "a.address % 4 == 0", "40 * blocks <= 49152"]
grid = "ceil_div(m, 32)"
block = 256
shared = "40 * blocks"
planted = "uninitialized"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WARPS = 8, ROWS = 32;

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

// The scale of activations, and their sum where it is stored.
template <typename A>
__device__ __forceinline__ float2 scales_of(const uint8_t* a) {
  float2 scales = make_float2(half_at(a), 0.0f);
  if constexpr (A::has_sum) scales.y = half_at(a + 2);
  return scales;
}

// What a part of two blocks adds. The sum of the activations makes up for the weights' offset or min; blocks of q8_1
// have it stored, and a quarter of it is a part's share.
template <typename W, typename A>
__device__ __forceinline__ float product(const uint8_t* w, Quants p, float2 scales, int part) {
  Quants q = W::quants(w, part);
  int dot = __dp4a(q.low, p.low, __dp4a(q.high, p.high, 0));
  float d = half_at(w), e = scales.x, m = 0.0f;
  if constexpr (W::has_min) m = half_at(w + 2);
  if constexpr (A::has_sum) {
    float s = 0.25f * scales.y;
    return d * (e * dot - W::offset * s) + m * s;
  } else {
    int s = __dp4a(0x01010101, p.low, __dp4a(0x01010101, p.high, 0));
    return e * (d * (dot - W::offset * s) + m * s);
  }
}

template <typename W, typename A>
__global__ void __launch_bounds__(32 * WARPS)
qgemv(float* __restrict__ out, const uint8_t* __restrict__ w, const uint8_t* __restrict__ a, int m, int blocks) {
  extern __shared__ Quants parts[];
  float2* scales = reinterpret_cast<float2*>(parts + 4 * blocks);
  int thread = threadIdx.x, lane = thread % 32;
  for (int i = thread; i < blocks; i += 32 * WARPS) parts[i] = A::quants(a + i / 4 * A::bytes, i % 4);
  for (int b = thread; b < blocks; b += 32 * WARPS) scales[b] = scales_of<A>(a + b * A::bytes);
  __syncthreads();
  int first = blockIdx.x * ROWS, end = min(first + ROWS, m);
  for (int row = first + thread / 32; row < end; row += WARPS) {
    const uint8_t* weights = w + static_cast<int64_t>(row) * blocks * W::bytes;
    float sum = 0.0f;
    for (int b = lane / 4; b < blocks; b += 8)
      sum += product<W, A>(weights + b * W::bytes, parts[4 * b + lane % 4], scales[b], lane % 4);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane == 0) out[row] = sum;
  }
}
