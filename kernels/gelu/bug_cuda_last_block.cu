/*
Bug: a thread does its four elements only if it has all of them.
---
op = "gelu"
entry = "gelu<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "n"]
dims = { n = "x.size" }
requires = ["approximate == 'tanh'"]
grid = "ceil_div(n, 1024)"
block = 256
planted = "unwritten"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

template <typename T>
__global__ void __launch_bounds__(256) gelu(T* __restrict__ out, const T* __restrict__ x, long long n) {
  using W = Wide<T>;
  const long long first = static_cast<long long>(blockIdx.x) * 1024 + threadIdx.x;
  if (first + 3 * 256 >= n) return;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const long long i = first + 256 * j;
    const W v = static_cast<W>(x[i]);
    const W inner = W(0.7978845608028654) * (v + W(0.044715) * v * v * v);  // sqrt(2 / pi)
    out[i] = static_cast<T>(W(0.5) * v * (1 + tanh(inner)));
  }
}
