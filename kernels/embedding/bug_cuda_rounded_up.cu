/*
Bug: the number of 16-byte steps is rounded up, so that the last one reaches into the next row, or out of the tensor.
---
op = "embedding"
entry = "embedding<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64", "int8"]
args = ["out", "table", "indices", "tokens", "width"]
dims = { tokens = "indices.size", width = "table.shape[1]" }
grid = "ceil_div(tokens, 8)"
block = [32, 8]
planted = "out_of_bounds"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

__device__ inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
__global__ void __launch_bounds__(256) embedding(T* __restrict__ out, const T* __restrict__ table,
                                                 const int64_t* __restrict__ indices, int tokens, int width) {
  const int token = blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const T* from = table + indices[token] * width;
  T* to = out + static_cast<int64_t>(token) * width;
  const int packs = is_aligned(from) && is_aligned(to) ? (width + Pack<T>::size - 1) / Pack<T>::size : 0;

  for (int i = threadIdx.x; i < packs; i += 32) {
    reinterpret_cast<Pack<T>*>(to)[i] = reinterpret_cast<const Pack<T>*>(from)[i];
  }
  for (int c = packs * Pack<T>::size + threadIdx.x; c < width; c += 32) to[c] = from[c];
}
