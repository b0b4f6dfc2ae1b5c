/*
Matrix times vector, a block a row, for few long rows: each warp sums a part, and the first warp adds the parts.

Lanes read neighbouring packs of 16 bytes; rows that do not begin at a multiple of 16 bytes are read one number at a
time.

---
op = "gemv"
entry = "gemv<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "a", "x", "y?", "m", "k", "alpha", "beta"]
dims = { m = "a.shape[0]", k = "a.shape[1]" }
grid = "m"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

constexpr int WARPS = 8;

// What numbers are summed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// What a thread reads at once.
template <typename T>
struct alignas(16) Pack {
  static constexpr int SIZE = 16 / sizeof(T);
  T of[SIZE];
};

template <typename Sum>
__device__ Sum warp_sum(Sum sum) {
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

template <typename T, typename Sum = typename Wide<T>::type>
__global__ void __launch_bounds__(32 * WARPS)
gemv(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ x, const T* __restrict__ y,
     int m, int k, Sum alpha, Sum beta) {
  __shared__ Sum parts[WARPS];
  const int row = blockIdx.x, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const T* a_row = a + (long long)row * k;
  const bool aligned = (reinterpret_cast<uintptr_t>(a_row) | reinterpret_cast<uintptr_t>(x)) % 16 == 0;
  const int packs = aligned ? k / Pack<T>::SIZE : 0;
  Sum sum = 0;
  for (int i = thread; i < packs; i += 32 * WARPS) {
    const Pack<T> left = reinterpret_cast<const Pack<T>*>(a_row)[i];
    const Pack<T> right = reinterpret_cast<const Pack<T>*>(x)[i];
    for (int j = 0; j < Pack<T>::SIZE; ++j) sum += Sum(left.of[j]) * Sum(right.of[j]);
  }
  for (int i = packs * Pack<T>::SIZE + thread; i < k; i += 32 * WARPS) sum += Sum(a_row[i]) * Sum(x[i]);
  sum = warp_sum(sum);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = warp_sum(lane < WARPS ? parts[lane] : Sum(0));
  if (lane != 0) return;
  sum *= alpha;
  if (y && beta != 0) sum += beta * Sum(y[row]);  // as in BLAS, beta = 0 reads no y
  out[row] = T(sum);
}
