/*
Softmax, a warp for each row of up to 1024 columns, which stays in registers: read once, written once.

A lane has every 32nd element of its row. Maximum and sum are found by shuffles, so no shared memory is needed. A NaN is
lost to the maximum, but not to the sum. Rows of the input and of the mask may lie apart.
---
op = "softmax"
entry = "softmax<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "x", "mask?", "scale", "rows", "cols", "x.strides[0]", "mask.strides[0]"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
requires = ["cols <= 1024"]
grid = "ceil_div(rows, 4)"
block = [32, 4]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int most = 1024 / 32;  // elements of a lane

__device__ float warp_max(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

// mask: null if there is none; pitch: from one row to the next, in elements.
template <typename T>
__global__ void __launch_bounds__(128)
    softmax(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ mask, float scale, int rows, int cols,
            long long pitch, long long mask_pitch) {
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  out += static_cast<size_t>(row) * cols;
  x += row * pitch;
  if (mask) mask += row * mask_pitch;

  float s[most];
  float top = -INFINITY;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int column = lane + 32 * j;
    if (column >= cols) break;
    s[j] = product(scale, static_cast<float>(x[column]));
    if (mask) s[j] += static_cast<float>(mask[column]);
    top = fmaxf(top, s[j]);
  }
  top = warp_max(top);

  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    if (lane + 32 * j >= cols) break;
    s[j] = expf(s[j] - top);
    sum += s[j];
  }
  const float share = 1.0f / warp_sum(sum);

#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int column = lane + 32 * j;
    if (column >= cols) break;
    out[column] = static_cast<T>(s[j] * share);
  }
}
