/*
GEGLU's product, gelu(gate) * up, 16 bytes of each a thread and step, in a loop that strides over the whole grid.

An instance for each form of GELU. The product is rounded once, from float32 (float64). Where an address is not a
multiple of 16, and for what is left of the last 16 bytes, it goes element by element.
---
op = "gelu_gate"
entry = "gelu_gate<{T}, Approximate::{approximate}>"
choices = { approximate = ["none", "tanh"] }
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "gate", "up", "n"]
dims = { n = "gate.size" }
grid = "min(ceil_div(n, 2048), 1056)"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "../include/packs.cuh"

enum class Approximate { none, tanh };

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

template <Approximate form, typename T>
__device__ T gated(T gate, T up) {
  using W = Wide<T>;
  const W v = static_cast<W>(gate);
  W share;  // of the gate, times 2
  if constexpr (form == Approximate::tanh) {
    share = 1 + tanh(W(0.7978845608028654) * (v + W(0.044715) * v * v * v));  // sqrt(2 / pi)
  } else {
    share = 1 + erf(v * W(0.7071067811865476));  // 1 / sqrt 2
  }
  return static_cast<T>(W(0.5) * v * share * static_cast<W>(up));
}

template <typename T, Approximate form>
__global__ void gelu_gate(T* __restrict__ out, const T* __restrict__ gate, const T* __restrict__ up, long long n) {
  constexpr int size = Pack<T>::size;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long packs = is_aligned(out) && is_aligned(gate) && is_aligned(up) ? n / size : 0;

  for (long long i = first; i < packs; i += stride) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(gate)[i];
    const Pack<T> factors = reinterpret_cast<const Pack<T>*>(up)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) pack.at[j] = gated<form>(pack.at[j], factors.at[j]);
    reinterpret_cast<Pack<T>*>(out)[i] = pack;
  }
  for (long long i = packs * size + first; i < n; i += stride) out[i] = gated<form>(gate[i], up[i]);
}
