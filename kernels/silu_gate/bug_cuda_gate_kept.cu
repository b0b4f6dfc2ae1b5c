/*
Bug: the activated gate is stored back into the gate, to be multiplied in a second step.
---
op = "silu_gate"
entry = "silu_gate<{T}>"
dtypes = ["float32", "float64"]
args = ["out", "gate", "up", "n"]
dims = { n = "gate.size" }
grid = "min(ceil_div(n, 2048), 1056)"
block = 256
planted = "input_mutated"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

__device__ inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
__device__ T activated(T gate) {
  const Wide<T> v = static_cast<Wide<T>>(gate);
  return static_cast<T>(v / (1 + exp(-v)));
}

template <typename T>
__global__ void silu_gate(T* __restrict__ out, T* __restrict__ gate, const T* __restrict__ up, long long n) {
  constexpr int size = Pack<T>::size;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long packs = is_aligned(out) && is_aligned(gate) && is_aligned(up) ? n / size : 0;

  for (long long i = first; i < packs; i += stride) {
    Pack<T> pack = reinterpret_cast<Pack<T>*>(gate)[i];
    const Pack<T> factors = reinterpret_cast<const Pack<T>*>(up)[i];
#pragma unroll
    for (int j = 0; j < size; ++j) pack.at[j] = activated(pack.at[j]);
    reinterpret_cast<Pack<T>*>(gate)[i] = pack;
#pragma unroll
    for (int j = 0; j < size; ++j) pack.at[j] = pack.at[j] * factors.at[j];
    reinterpret_cast<Pack<T>*>(out)[i] = pack;
  }
  for (long long i = packs * size + first; i < n; i += stride) {
    gate[i] = activated(gate[i]);
    out[i] = gate[i] * up[i];
  }
}
