/*
SwiGLU's product, silu(gate) * up, 16 bytes of each a thread and step, in a loop that strides over the whole grid.

The product is rounded once, from float32 (float64). Where an address is not a multiple of 16, and for what is left of
the last 16 bytes, it goes element by element.
---
op = "silu_gate"
entry = "silu_gate<{T}>"
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

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

template <typename T>
__device__ T gated(T gate, T up) {
  const Wide<T> v = static_cast<Wide<T>>(gate);
  return static_cast<T>(v / (1 + exp(-v)) * static_cast<Wide<T>>(up));
}

template <typename T>
__global__ void silu_gate(T* __restrict__ out, const T* __restrict__ gate, const T* __restrict__ up, long long n) {
  constexpr int size = Pack<T>::size;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long packs = is_aligned(out) && is_aligned(gate) && is_aligned(up) ? n / size : 0;

  for (long long i = first; i < packs; i += stride) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(gate)[i];
    const Pack<T> factors = reinterpret_cast<const Pack<T>*>(up)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) pack.at[j] = gated(pack.at[j], factors.at[j]);
    reinterpret_cast<Pack<T>*>(out)[i] = pack;
  }
  for (long long i = packs * size + first; i < n; i += stride) out[i] = gated(gate[i], up[i]);
}
