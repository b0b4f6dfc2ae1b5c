/*
Bug: the sum goes into the shared memory of the maximum without a barrier, where other warps may still be reading that.
---
op = "softmax"
entry = "softmax<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "mask?", "scale", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
planted = "race"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

struct Larger {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return max(a, b);
  }
};

struct Sum {
  template <typename W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};

// The result for each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W, typename Op>
__device__ W over_lanes(W value, Op op) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

// The result for the block, in every thread. parts: shared memory for a number a warp.
template <typename W, typename Op>
__device__ W over_block(W value, W* parts, Op op) {
  value = over_lanes<32>(value, op);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();  // now the parts are there
  return over_lanes<warps>(parts[threadIdx.x % warps], op);
}

// mask: null if there is none.
template <typename T>
__global__ void __launch_bounds__(256)
    softmax(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ mask, Wide<T> scale, int cols) {
  using W = Wide<T>;
  __shared__ W parts[warps];
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  const auto s = [=](int column) {
    const W scaled = product(scale, static_cast<W>(x[start + column]));
    return mask ? scaled + static_cast<W>(mask[start + column]) : scaled;
  };

  W top = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) top = max(top, s(c));
  top = over_block(top, parts, Larger());

  W sum = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += exp(s(c) - top);
  const W share = 1 / over_block(sum, parts, Sum());

  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[start + c] = static_cast<T>(exp(s(c) - top) * share);
}
