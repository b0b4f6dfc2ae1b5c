/*
Rotary embedding of pairs that lie half a head apart, with given tables, 16 bytes of each a thread and step.

A thread loads neighbouring first elements, the second elements of the same pairs, and their cosines and sines. Where
addresses or sizes do not allow that, it takes one pair at a time. What is beyond the rotated part of a head is copied.
---
op = "rope"
entry = "rope<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "cos", "sin", "heads", "width", "pairs"]
dims = { heads = "x.shape[1]", width = "x.shape[2]", pairs = "x.shape[2] // (2 * part)" }
requires = ["style == 'neox'", "theta > 0", "offset >= 0"]  # whatever the latter are: the tables say it all
grid = "x.shape[0]"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

template <int count, typename T>
__device__ Pack<T, count> load(const T* p) {
  return *reinterpret_cast<const Pack<T, count>*>(p);
}

template <int count, typename T>
__device__ void store(T* p, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(p) = pack;
}

// All heads of a token, `count` pairs at a time. width: of a head; pairs: that are rotated, in each head.
template <int count, typename T>
__device__ void rotate(T* out, const T* x, const T* cosines, const T* sines, int heads, int width, int pairs) {
  using W = Wide<T>;
  const int packs = pairs / count;  // of a head
  for (int i = threadIdx.x; i < heads * packs; i += blockDim.x) {
    const int pair = i % packs * count, at = i / packs * width + pair;
    Pack<T, count> a = load<count>(x + at), b = load<count>(x + at + pairs);
    const Pack<T, count> c = load<count>(cosines + pair), s = load<count>(sines + pair);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const W first = static_cast<W>(a.at[j]), second = static_cast<W>(b.at[j]);
      const W cosine = static_cast<W>(c.at[j]), sine = static_cast<W>(s.at[j]);
      a.at[j] = static_cast<T>(first * cosine - second * sine);
      b.at[j] = static_cast<T>(first * sine + second * cosine);
    }
    store<count>(out + at, a);
    store<count>(out + at + pairs, b);
  }

  const int rests = (width - 2 * pairs) / count;
  for (int i = threadIdx.x; i < heads * rests; i += blockDim.x) {
    const int at = i / rests * width + 2 * pairs + i % rests * count;
    store<count>(out + at, load<count>(x + at));
  }
}

template <typename T>
__global__ void __launch_bounds__(256) rope(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ cosines,
                                            const T* __restrict__ sines, int heads, int width, int pairs) {
  constexpr int count = 16 / sizeof(T);
  const size_t token = blockIdx.x;
  out += token * heads * width, x += token * heads * width;
  cosines += token * pairs, sines += token * pairs;
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(x) |
                              reinterpret_cast<uintptr_t>(cosines) | reinterpret_cast<uintptr_t>(sines);
  if (pairs % count == 0 && addresses % 16 == 0) {  // so is width, a multiple of pairs
    rotate<count>(out, x, cosines, sines, heads, width, pairs);
  } else {
    rotate<1>(out, x, cosines, sines, heads, width, pairs);
  }
}
