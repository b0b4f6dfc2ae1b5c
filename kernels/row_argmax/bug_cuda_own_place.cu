/*
Bug: lanes exchange their largest elements, but each keeps its own place with the one it gets.
---
op = "row_argmax"
entry = "row_argmax<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
planted = "mismatch"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cstdint>
#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is compared in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

template <typename W>
struct Candidate {
  W value;
  int place;

  __device__ bool beats(Candidate other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (nan || value == other.value) return place < other.place;
    return value > other.value;
  }
};

// The best of each group of so many neighbouring lanes, in all of them.
template <int lanes, typename W>
__device__ Candidate<W> best(Candidate<W> mine) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) {
    Candidate<W> other;
    other.value = __shfl_xor_sync(all_lanes, mine.value, step);
    other.place = mine.place;
    if (other.value > mine.value) mine = other;
  }
  return mine;
}

template <typename T>
__global__ void __launch_bounds__(256) row_argmax(int64_t* __restrict__ out, const T* __restrict__ x, int cols) {
  using W = Wide<T>;
  __shared__ Candidate<W> parts[warps];
  x += static_cast<size_t>(blockIdx.x) * cols;

  Candidate<W> mine = {-INFINITY, INT_MAX};  // loses to -Inf itself, which is further left
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const Candidate<W> other = {static_cast<W>(x[c]), c};
    if (other.beats(mine)) mine = other;
  }
  mine = best<32>(mine);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  mine = best<warps>(parts[threadIdx.x % warps]);
  if (threadIdx.x == 0) out[blockIdx.x] = mine.place;
}
