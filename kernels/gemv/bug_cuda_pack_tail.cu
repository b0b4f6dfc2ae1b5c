/*
Bug: what is left of an aligned row behind its last full pack is not added.

Else it is cuda_warp_row.cu.

---
op = "gemv"
entry = "gemv<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "a", "x", "y?", "m", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", k = "a.shape[1]" }
grid = "ceil_div(m, 8)"
block = 256
planted = "mismatch"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// What numbers are summed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// What a lane reads at once.
template <typename T>
struct alignas(16) Pack {
  static constexpr int SIZE = 16 / sizeof(T);
  T of[SIZE];
};

template <typename T, typename Sum = typename Wide<T>::type>
__global__ void gemv(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ x, const T* __restrict__ y,
                     int m, int k, Sum alpha, Sum beta) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= m) return;  // the whole warp
  const T* a_row = a + (long long)row * k;
  const bool aligned = (reinterpret_cast<uintptr_t>(a_row) | reinterpret_cast<uintptr_t>(x)) % 16 == 0;
  const int packs = aligned ? k / Pack<T>::SIZE : 0;
  Sum sum = 0;
  for (int i = lane; i < packs; i += 32) {
    const Pack<T> left = reinterpret_cast<const Pack<T>*>(a_row)[i];
    const Pack<T> right = reinterpret_cast<const Pack<T>*>(x)[i];
    for (int j = 0; j < Pack<T>::SIZE; ++j) sum += Sum(left.of[j]) * Sum(right.of[j]);
  }
  for (int i = aligned ? k : lane; i < k; i += 32) sum += Sum(a_row[i]) * Sum(x[i]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane != 0) return;
  sum *= alpha;
  if (y && beta != 0) sum += beta * Sum(y[row]);  // as in BLAS, beta = 0 reads no y
  out[row] = T(sum);
}
