/*
Attention without shared memory: a warp has a query, a lane every 32nd column, and keys are taken one by one.

The sum and the output so far are rescaled whenever a score is higher than all before it, so that nothing overflows.

---
op = "attention"
entry = "attention<{T}>"
dtypes = ["float32", "float16", "bfloat16", "float64"]
args = ["out", "q", "k", "v", "lengths?", "group", "queries", "keys", "head", "causal", "scale"]
dims.heads = "q.shape[1]"
dims.group = "heads // k.shape[1]"
dims.queries = "q.shape[2]"
dims.keys = "k.shape[2]"
dims.head = "q.shape[3]"
requires = ["head <= 256", "heads <= 65535", "q.shape[0] <= 65535"]
grid = ["ceil_div(queries, 4)", "heads", "q.shape[0]"]
block = [32, 4]
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

constexpr int PARTS = 8;  // columns of a lane: 256 / 32

// What numbers are computed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

template <typename Real>
__device__ Real warp_sum(Real x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

template <typename T, typename Real = typename Wide<T>::type>
__global__ void attention(T* __restrict__ out, const T* __restrict__ q, const T* __restrict__ k,
                          const T* __restrict__ v, const int32_t* __restrict__ lengths, int group, int queries,
                          int keys, int head, bool causal, Real scale) {
  const int lane = threadIdx.x, query = blockIdx.x * blockDim.y + threadIdx.y;
  if (query >= queries) return;  // the whole warp
  const long long row = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * queries + query;
  const long long kv_row = ((long long)blockIdx.z * (gridDim.y / group) + blockIdx.y / group) * keys;
  const int length = lengths ? lengths[blockIdx.z] : keys;
  const int end = causal ? min(length, query + 1 + length - queries) : length;
  if (scale == 0) scale = 1 / sqrt(Real(head));

  Real mine[PARTS] = {}, sums[PARTS] = {}, total = 0, top = -INFINITY;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    if (32 * part + lane < head) mine[part] = Real(q[row * head + 32 * part + lane]);
  }
  for (int key = 0; key < end; ++key) {
    const T* k_row = k + (kv_row + key) * head;
    const T* v_row = v + (kv_row + key) * head;
    Real score = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      if (32 * part + lane < head) score += mine[part] * Real(k_row[32 * part + lane]);
    }
    score = product(scale, warp_sum(score));
    Real shrink = 1, weight = 1;
    if (score > top) {
      shrink = exp(top - score);
      top = score;
    } else if (score == -INFINITY) {
      weight = 0;  // top may be -Inf, too, and -Inf minus -Inf is NaN
    } else {
      weight = exp(score - top);
    }
    total = total * shrink + weight;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      if (32 * part + lane < head) sums[part] = sums[part] * shrink + weight * Real(v_row[32 * part + lane]);
    }
  }
  const Real factor = total == 0 ? Real(0) : 1 / total;  // a row that sees nothing is 0
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    if (32 * part + lane < head) out[row * head + 32 * part + lane] = T(sums[part] * factor);
  }
}
