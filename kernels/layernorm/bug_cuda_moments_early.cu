/*
Bug: mean and factor are read without a barrier behind the lines where the first thread writes them.
---
op = "layernorm"
entry = "layernorm<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "x", "weight", "bias", "eps", "cols"]
dims = { cols = "x.shape[1]" }
grid = "x.shape[0]"
block = 256
planted = "race"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // what T is computed in

inline constexpr unsigned all_lanes = 0xffffffff;
inline constexpr int warps = 256 / 32;

template <typename W>
struct Moments {
  W count, mean, squares;  // squares: the sum of the squared differences from the mean

  __device__ void add(W value) {
    count += 1;
    const W off = value - mean;
    mean += off / count;
    squares += off * (value - mean);
  }

  __device__ void merge(Moments other) {
    if (other.count == 0) return;
    const W off = other.mean - mean, part = other.count / (count + other.count);
    mean += off * part;
    squares += other.squares + off * off * (count * part);
    count += other.count;
  }
};

// The result for each group of so many neighbouring lanes, in the first of them.
template <int lanes, typename W>
__device__ Moments<W> over_lanes(Moments<W> mine) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) {
    Moments<W> other;
    other.count = __shfl_down_sync(all_lanes, mine.count, step);
    other.mean = __shfl_down_sync(all_lanes, mine.mean, step);
    other.squares = __shfl_down_sync(all_lanes, mine.squares, step);
    mine.merge(other);
  }
  return mine;
}

template <typename T>
__global__ void __launch_bounds__(256)
    layernorm(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
              Wide<T> eps, int cols) {
  using W = Wide<T>;
  __shared__ Moments<W> parts[warps];
  __shared__ W mean, factor;
  const size_t start = static_cast<size_t>(blockIdx.x) * cols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  Moments<W> row = {0, 0, 0};
  for (int c = threadIdx.x; c < cols; c += blockDim.x) row.add(static_cast<W>(x[start + c]));
  row = over_lanes<32>(row);
  if (lane == 0) parts[warp] = row;
  __syncthreads();
  if (warp == 0) {
    row = over_lanes<warps>(parts[lane % warps]);
    if (lane == 0) {
      mean = row.mean;
      factor = rsqrt(row.squares / static_cast<W>(cols) + eps);
    }
  }

  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const W normal = (static_cast<W>(x[start + c]) - mean) * factor;
    out[start + c] = static_cast<T>(normal * static_cast<W>(weight[c]) + static_cast<W>(bias[c]));
  }
}
