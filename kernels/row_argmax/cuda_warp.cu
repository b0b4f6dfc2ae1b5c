/*
Places of the largest numbers of rows, a warp for each row; lanes that hold the largest number are found by a ballot.

Each lane keeps its first largest number. The maximum over the warp then needs no places with it: the lanes that have it
say so, and the first one of them writes. A NaN is never larger than a number.
---
op = "row_argmax"
entry = "row_argmax<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "rows", "cols"]
dims = { rows = "x.shape[0]", cols = "x.shape[1]" }
grid = "ceil_div(rows, 8)"
block = [32, 8]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is compared in

inline constexpr unsigned all_lanes = 0xffffffff;

template <typename T>
__global__ void __launch_bounds__(256)
    row_argmax(int64_t* __restrict__ out, const T* __restrict__ x, int rows, int cols) {
  using W = Wide<T>;
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // all lanes of a warp, or none
  x += static_cast<size_t>(row) * cols;

  W top = -INFINITY;
  int place = 0;  // if nothing is larger than -Inf, this one is either -Inf, too, or NaN, which may be named as well
  for (int c = lane; c < cols; c += 32) {
    const W value = static_cast<W>(x[c]);
    if (value > top) top = value, place = c;
  }
  W highest = top;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) highest = max(highest, __shfl_xor_sync(all_lanes, highest, step));
  const unsigned holders = __ballot_sync(all_lanes, top == highest);
  if (lane == __ffs(static_cast<int>(holders)) - 1) out[row] = place;
}
