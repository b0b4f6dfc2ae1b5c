/*
Bug: the sum of a thread begins with what its register holds, which is often zero, but by chance.
---
op = "row_sum"
entry = "row_sum<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "x", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
planted = "nonfinite"
shows = "emulator"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is summed in

template <typename T>
__global__ void __launch_bounds__(256) row_sum(T* __restrict__ out, const T* __restrict__ x, int cols) {
  using W = Wide<T>;
  __shared__ W sums[256];
  const int thread = threadIdx.x;
  x += static_cast<size_t>(blockIdx.x) * cols;

  W sum;
  for (int c = thread; c < cols; c += 256) sum += static_cast<W>(x[c]);
  sums[thread] = sum;
  __syncthreads();

  for (int others = 128; others >= 64; others /= 2) {
    if (thread < others) sums[thread] += sums[thread + others];
    __syncthreads();
  }

  if (thread >= 32) return;
  for (int others = 32; others > 0; others /= 2) {
    sum = sums[thread] + sums[thread + others];
    __syncwarp();
    sums[thread] = sum;
    __syncwarp();
  }
  if (thread == 0) out[blockIdx.x] = static_cast<T>(sum);
}
