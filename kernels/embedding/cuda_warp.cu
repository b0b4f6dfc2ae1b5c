/*
Rows picked by index (int64), a warp for each row, 16 bytes a lane and step.

Where a row does not begin at a multiple of 16 bytes, and for what is left of its last 16, it goes element by element.
---
op = "embedding"
entry = "embedding<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64", "int8"]
args = ["out", "table", "indices", "tokens", "width"]
dims = { tokens = "indices.size", width = "table.shape[1]" }
grid = "ceil_div(tokens, 8)"
block = [32, 8]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../include/packs.cuh"

template <typename T>
__global__ void __launch_bounds__(256) embedding(T* __restrict__ out, const T* __restrict__ table,
                                                 const int64_t* __restrict__ indices, int tokens, int width) {
  const int token = blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const T* from = table + indices[token] * width;
  T* to = out + static_cast<int64_t>(token) * width;
  const int packs = is_aligned(from) && is_aligned(to) ? width / Pack<T>::size : 0;

  for (int i = threadIdx.x; i < packs; i += 32) {
    reinterpret_cast<Pack<T>*>(to)[i] = reinterpret_cast<const Pack<T>*>(from)[i];
  }
  for (int c = packs * Pack<T>::size + threadIdx.x; c < width; c += 32) to[c] = from[c];
}
