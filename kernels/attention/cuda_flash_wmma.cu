/*
FlashAttention on tensor cores, for half precision: tiles of 32 keys, and 16 queries a warp.

Scores, weights and the output so far lie in shared memory, where their rows can be told apart: a score is scaled and
masked there, a weight is rounded to the type of the values, a row of the output is rescaled when its maximum grows.
Tiles are taken from the last to the first, as in FlashAttention-2. What lies behind the end of a sequence, or behind
the last column, is staged as 0.

---
op = "attention"
entry = "attention<{T}>"
dtypes = ["float16", "bfloat16"]
args = ["out", "q", "k", "v", "lengths?", "group", "queries", "keys", "head", "causal", "scale"]
dims.heads = "q.shape[1]"
dims.group = "heads // k.shape[1]"
dims.queries = "q.shape[2]"
dims.keys = "k.shape[2]"
dims.head = "q.shape[3]"
dims.width = "ceil_div(head, 16) * 16"
requires = ["head <= 256", "heads <= 65535", "q.shape[0] <= 65535"]
grid = ["ceil_div(queries, 64)", "heads", "q.shape[0]"]
block = 128
shared = "(64 + 32 + 32) * (width + 8) * 2 + 64 * (32 + 8) * 2 + 64 * (32 + 4) * 4 + 64 * (width + 4) * 4"
numerics = { accumulate = "ampere", intermediates = { p = "input" } }
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

using namespace nvcuda;

constexpr int WARPS = 4;
constexpr int EACH = 16;  // queries of a warp
constexpr int QUERIES = WARPS * EACH;
constexpr int KEYS = 32;           // of a tile
constexpr int SCORES = KEYS + 4;   // columns of a tile of scores, skewed
constexpr int WEIGHTS = KEYS + 8;  // and of weights
constexpr unsigned ALL = 0xffffffffu;

template <typename T>
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <typename T, typename Order>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, Order>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Copies `rows` rows, `width` columns of them, with 0 behind the first `there` rows and `head` columns.
template <typename T>
__device__ void stage(T* tile, const T* from, int rows, int there, int head, int width) {
  constexpr int PACK = 16 / sizeof(T);
  const bool aligned = head % PACK == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  for (int i = threadIdx.x; i < rows * (width / PACK); i += blockDim.x) {
    const int row = i / (width / PACK), col = i % (width / PACK) * PACK;
    const T* source = from + row * head + col;
    T* to = tile + row * (width + 8) + col;
    if (aligned && row < there && col < head) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(source);
    } else {
      for (int j = 0; j < PACK; ++j) to[j] = row < there && col + j < head ? source[j] : T(0.0f);
    }
  }
}

__device__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
  return x;
}

__device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(ALL, x, step);
  return x;
}

template <typename T>
__global__ void __launch_bounds__(32 * WARPS)
attention(T* __restrict__ out, const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
          const int32_t* __restrict__ lengths, int group, int queries, int keys, int head, bool causal, float scale) {
  extern __shared__ float4 memory[];
  const int width = (head + 15) / 16 * 16;             // columns as staged
  const int pitch = width + 8, out_pitch = width + 4;  // skewed, so that eight rows are in different banks
  T* q_tile = reinterpret_cast<T*>(memory);
  T* k_tile = q_tile + QUERIES * pitch;
  T* v_tile = k_tile + KEYS * pitch;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = blockIdx.x * QUERIES;
  T* weights = v_tile + KEYS * pitch + warp * EACH * WEIGHTS;  // from here on, the warp's own
  float* all_scores = reinterpret_cast<float*>(v_tile + KEYS * pitch + QUERIES * WEIGHTS);
  float* scores = all_scores + warp * EACH * SCORES;
  float* outs = all_scores + QUERIES * SCORES + warp * EACH * out_pitch;

  const long long at = (long long)blockIdx.z * gridDim.y + blockIdx.y;  // of the head of q among all
  const long long kv_at = (long long)blockIdx.z * (gridDim.y / group) + blockIdx.y / group;
  q += (at * queries + begin) * head;
  out += (at * queries + begin) * head;
  k += kv_at * keys * head;
  v += kv_at * keys * head;
  const int count = min(QUERIES, queries - begin);
  const int length = lengths ? lengths[blockIdx.z] : keys;
  const int later = length - queries;  // by so much the last key that a query sees comes later than the query
  const int end = causal ? min(length, begin + count + later) : length;
  if (scale == 0.0f) scale = 1.0f / sqrtf(float(head));

  float top[EACH], total[EACH];  // total: of this lane's keys only
  for (int i = 0; i < EACH; ++i) {
    top[i] = -INFINITY;
    total[i] = 0.0f;
  }
  for (int i = lane; i < EACH * out_pitch; i += 32) outs[i] = 0.0f;
  stage(q_tile, q, QUERIES, count, head, width);
  for (int tile = (end + KEYS - 1) / KEYS - 1; tile >= 0; --tile) {
    const int first = tile * KEYS, there = min(KEYS, end - first);
    stage(k_tile, k + (long long)first * head, KEYS, there, head, width);
    stage(v_tile, v + (long long)first * head, KEYS, there, head, width);
    __syncthreads();

    for (int j = 0; j < KEYS; j += 16) {
      Sums sums;
      wmma::fill_fragment(sums, 0.0f);
      for (int d = 0; d < width; d += 16) {
        Left<T> query;
        Right<T, wmma::col_major> key;
        wmma::load_matrix_sync(query, q_tile + warp * EACH * pitch + d, pitch);
        wmma::load_matrix_sync(key, k_tile + j * pitch + d, pitch);
        wmma::mma_sync(sums, query, key, sums);
      }
      wmma::store_matrix_sync(scores + j, sums, SCORES, wmma::mem_row_major);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int last = causal ? min(end - 1, begin + warp * EACH + i + later) : end - 1;
      const float score = first + lane <= last ? product(scale, scores[i * SCORES + lane]) : -INFINITY;
      const float highest = fmaxf(top[i], warp_max(score));
      const float shift = highest == -INFINITY ? 0.0f : highest;  // nothing seen so far: -Inf minus -Inf is NaN
      const float shrink = expf(top[i] - shift), weight = expf(score - shift);
      top[i] = highest;
      total[i] = total[i] * shrink + weight;
      weights[i * WEIGHTS + lane] = T(weight);
      if (shrink != 1.0f) {
        for (int col = lane; col < width; col += 32) outs[i * out_pitch + col] *= shrink;
      }
    }
    __syncwarp();
    for (int d = 0; d < width; d += 16) {
      Sums sums;
      wmma::load_matrix_sync(sums, outs + d, out_pitch, wmma::mem_row_major);
      for (int j = 0; j < KEYS; j += 16) {
        Left<T> weight;
        Right<T, wmma::row_major> value;
        wmma::load_matrix_sync(weight, weights + j, WEIGHTS);
        wmma::load_matrix_sync(value, v_tile + j * pitch + d, pitch);
        wmma::mma_sync(sums, weight, value, sums);
      }
      wmma::store_matrix_sync(outs + d, sums, out_pitch, wmma::mem_row_major);
    }
    __syncthreads();  // the next step overwrites both tiles
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int row = warp * EACH + i;
    const float sum = warp_sum(total[i]);
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;  // a row that sees nothing is 0
    if (row >= count) continue;
    T* out_row = out + (long long)row * head;
    for (int col = lane; col < head; col += 32) out_row[col] = T(outs[i * out_pitch + col] * factor);
  }
}
