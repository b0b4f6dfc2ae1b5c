/*
Attention, a block a query, with all scores in shared memory: for few queries and many keys, as when text is generated.

Four steps with a barrier between them: a warp has a key and multiplies it with the query; a thread has every 128th key
and finds their maximum, and the sum of the weights relative to it; these pairs are merged; a thread has a column and
sums the values. Threads without a key have the maximum -Inf.

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
requires = ["keys <= 16384", "heads <= 65535", "q.shape[0] <= 65535"]
grid = ["queries", "heads", "q.shape[0]"]
block = 128
shared = "8 * keys"  # doubles, at the most
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr unsigned ALL = 0xffffffffu;

// What numbers are computed in.
template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

// The maximum of some scores, and the sum of exp(score - maximum).
template <typename Real>
struct Pair {
  Real top, total;
};

// exp(x - top), where top is the maximum of x and others: 0 if all of them are -Inf, whose difference would be NaN.
template <typename Real>
__device__ Real weight_of(Real x, Real top) {
  return exp(x - (top == -INFINITY ? Real(0) : top));
}

template <typename Real>
__device__ Pair<Real> merged(Pair<Real> a, Pair<Real> b) {
  const Real top = fmax(a.top, b.top);
  return {top, a.total * weight_of(a.top, top) + b.total * weight_of(b.top, top)};
}

template <typename T, typename Real = typename Wide<T>::type>
__global__ void __launch_bounds__(THREADS)
attention(T* __restrict__ out, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
          const int32_t* __restrict__ lengths, int group, int queries, int keys, int head, bool causal, Real scale) {
  extern __shared__ double memory[];
  __shared__ Pair<Real> pairs[WARPS];
  Real* scores = reinterpret_cast<Real*>(memory);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, query = blockIdx.x;
  const long long row = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * queries + query;
  const long long kv_row = ((long long)blockIdx.z * (gridDim.y / group) + blockIdx.y / group) * keys;
  q += row * head;
  out += row * head;
  k += kv_row * head;
  v += kv_row * head;
  const int length = lengths ? lengths[blockIdx.z] : keys;
  const int end = causal ? min(length, query + 1 + length - queries) : length;
  if (scale == 0) scale = 1 / sqrt(Real(head));

  for (int key = warp; key < end; key += WARPS) {
    Real sum = 0;
    for (int d = lane; d < head; d += 32) sum += Real(q[d]) * Real(k[(long long)key * head + d]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (lane == 0) scores[key] = scale * sum;
  }
  __syncthreads();

  Pair<Real> pair = {-INFINITY, 0};
  for (int key = thread; key < end; key += THREADS) pair = merged(pair, {scores[key], Real(1)});
  for (int step = 16; step > 0; step /= 2) {
    pair = merged(pair, {__shfl_xor_sync(ALL, pair.top, step), __shfl_xor_sync(ALL, pair.total, step)});
  }
  if (lane == 0) pairs[warp] = pair;
  __syncthreads();

  pair = pairs[0];
  for (int i = 1; i < WARPS; ++i) pair = merged(pair, pairs[i]);
  const Real factor = pair.total == 0 ? Real(0) : 1 / pair.total;  // a row that sees nothing is 0
  for (int key = thread; key < end; key += THREADS) scores[key] = factor * weight_of(scores[key], pair.top);
  __syncthreads();

  for (int d = thread; d < head; d += THREADS) {
    Real sum = 0;
    for (int key = 0; key < end; ++key) sum += scores[key] * Real(v[(long long)key * head + d]);
    out[d] = T(sum);
  }
}
