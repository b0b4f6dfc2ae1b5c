/*
SiLU, x / (1 + exp(-x)), 16 bytes a thread and step, in a loop that strides over the whole grid.

Where an address is not a multiple of 16, and for what is left of the last 16 bytes, it goes element by element.
---
op = "silu"
entry = "silu<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "n"]
dims = { n = "x.size" }
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
__device__ T activated(T x) {
  const Wide<T> v = static_cast<Wide<T>>(x);
  return static_cast<T>(v / (1 + exp(-v)));
}

template <typename T>
__global__ void silu(T* __restrict__ out, const T* __restrict__ x, long long n) {
  constexpr int size = Pack<T>::size;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long packs = is_aligned(out) && is_aligned(x) ? n / size : 0;

  for (long long i = first; i < packs; i += stride) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) pack.at[j] = activated(pack.at[j]);
    reinterpret_cast<Pack<T>*>(out)[i] = pack;
  }
  for (long long i = packs * size + first; i < n; i += stride) out[i] = activated(x[i]);
}
