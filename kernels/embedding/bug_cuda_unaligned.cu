/*
Bug: rows are copied 16 bytes at a time if their length allows it, wherever they begin.
---
op = "embedding"
entry = "embedding<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64", "int8"]
args = ["out", "table", "indices", "tokens", "width"]
dims = { tokens = "indices.size", width = "table.shape[1]" }
grid = ["ceil_div(width, 512)", "min(tokens, 65535)"]
block = 128
planted = "crashed"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

// All rows, of which a thread copies `count` elements at a time.
template <int count, typename T>
__device__ void gather(T* out, const T* table, const int32_t* indices, int tokens, int width) {
  using Packed = Pack<T, count>;
  for (int token = blockIdx.y; token < tokens; token += gridDim.y) {
    const auto* from = reinterpret_cast<const Packed*>(table + static_cast<int64_t>(indices[token]) * width);
    auto* to = reinterpret_cast<Packed*>(out + static_cast<int64_t>(token) * width);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < width / count; i += gridDim.x * blockDim.x) to[i] = from[i];
  }
}

template <typename T>
__global__ void __launch_bounds__(128) embedding(T* __restrict__ out, const T* __restrict__ table,
                                                 const int32_t* __restrict__ indices, int tokens, int width) {
  constexpr int count = 16 / sizeof(T);
  if (width % count == 0) {
    gather<count>(out, table, indices, tokens, width);
  } else {
    gather<1>(out, table, indices, tokens, width);
  }
}
