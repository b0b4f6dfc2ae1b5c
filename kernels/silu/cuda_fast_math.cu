/*
SiLU with the fast exponential and the fast quotient of the special function unit, one thread an element.

The quotient is 0 where its divisor is beyond 2**126; so is SiLU there, nearly.
---
op = "silu"
entry = "silu<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "x", "n"]
dims = { n = "x.size" }
grid = "ceil_div(n, 256)"
block = 256
numerics = { fast_math = true }
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
__global__ void silu(T* __restrict__ out, const T* __restrict__ x, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = static_cast<float>(x[i]);
  out[i] = static_cast<T>(__fdividef(v, 1.0f + __expf(-v)));
}
