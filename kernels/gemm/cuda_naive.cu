/*
Matrix product, one thread an element: a warp reads one row of a together, and neighbours in the rows of b.

---
op = "gemm"
entry = "gemm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "a", "b", "c?", "m", "n", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", n = "b.shape[1]", k = "a.shape[1]" }
requires = ["m <= 524280"]
grid = ["ceil_div(n, 32)", "ceil_div(m, 8)"]
block = [32, 8]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// What numbers are summed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

template <typename T, typename Sum = typename Wide<T>::type>
__global__ void gemm(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
                     int m, int n, int k, Sum alpha, Sum beta) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  const T* a_row = a + (long long)row * k;
  Sum sum = 0;
  for (int l = 0; l < k; ++l) sum += Sum(a_row[l]) * Sum(b[(long long)l * n + col]);
  sum *= alpha;
  const long long at = (long long)row * n + col;
  if (c && beta != 0) sum += beta * Sum(c[at]);  // as in BLAS, beta = 0 reads no c
  out[at] = T(sum);
}
