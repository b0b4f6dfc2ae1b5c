/*
Online softmax, a block for each row: maximum and sum in one pass, then the quotients in a second one.

Each thread keeps the largest number so far and the sum of exponentials relative to it, which is rescaled when a larger
one comes. It takes 16 bytes at a time where the row is aligned. Two such pairs are merged into one in the same way,
over the warp by shuffles, then over the warps.
---
op = "softmax"
entry = "softmax<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "mask?", "scale", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>
#include <type_traits>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

// Where a running maximum begins: not at -Inf, of which the difference to an element that is -Inf would be NaN.
template <typename W>
constexpr W lowest = -FLT_MAX;
template <>
constexpr double lowest<double> = -DBL_MAX;

template <typename W>
struct Running {
  W top, sum;  // the sum is that of exp(element - top)

  __device__ void rescale(W other) {
    const W higher = max(top, other);
    sum *= exp(top - higher);
    top = higher;
  }

  __device__ void merge(Running other) {
    rescale(other.top);
    sum += other.sum * exp(other.top - top);
  }
};

// The result for each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W>
__device__ Running<W> over_lanes(Running<W> mine) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) {
    Running<W> other;
    other.top = __shfl_xor_sync(all_lanes, mine.top, step);
    other.sum = __shfl_xor_sync(all_lanes, mine.sum, step);
    mine.merge(other);
  }
  return mine;
}

// One row, of which a thread takes `count` elements at a time. mask: null if there is none.
template <int count, typename T>
__device__ void softmax_of_row(T* out, const T* x, const T* mask, Wide<T> scale, int cols, Running<Wide<T>>* parts) {
  using W = Wide<T>;
  using Packed = Pack<T, count>;
  const auto load = [=](int i, W* s) {
    const Packed pack = reinterpret_cast<const Packed*>(x)[i];
#pragma unroll
    for (int j = 0; j < count; ++j) s[j] = product(scale, static_cast<W>(pack.at[j]));
    if (!mask) return;
    const Packed more = reinterpret_cast<const Packed*>(mask)[i];
#pragma unroll
    for (int j = 0; j < count; ++j) s[j] += static_cast<W>(more.at[j]);
  };

  Running<W> row = {lowest<W>, 0};
  W s[count];
  for (int i = threadIdx.x; i < cols / count; i += blockDim.x) {
    load(i, s);
    W top = s[0];
#pragma unroll
    for (int j = 1; j < count; ++j) top = max(top, s[j]);
    row.rescale(top);
#pragma unroll
    for (int j = 0; j < count; ++j) row.sum += exp(s[j] - row.top);
  }
  row = over_lanes<32>(row);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = row;
  __syncthreads();
  row = over_lanes<warps>(parts[threadIdx.x % warps]);

  const W share = 1 / row.sum;
  for (int i = threadIdx.x; i < cols / count; i += blockDim.x) {
    load(i, s);
    Packed pack;
#pragma unroll
    for (int j = 0; j < count; ++j) pack.at[j] = static_cast<T>(exp(s[j] - row.top) * share);
    reinterpret_cast<Packed*>(out)[i] = pack;
  }
}

template <typename T>
__global__ void __launch_bounds__(256)
    softmax(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ mask, Wide<T> scale, int cols) {
  __shared__ Running<Wide<T>> parts[warps];
  constexpr int count = 16 / sizeof(T);
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  out += start, x += start, mask += mask ? start : 0;
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(x) |
                              reinterpret_cast<uintptr_t>(mask);
  if (cols % count == 0 && addresses % 16 == 0) {  // the same for all threads of the block
    softmax_of_row<count>(out, x, mask, scale, cols, parts);
  } else {
    softmax_of_row<1>(out, x, mask, scale, cols, parts);
  }
}
