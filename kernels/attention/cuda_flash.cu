/*
FlashAttention: tiles of keys pass through shared memory; sum and output are rescaled when the running maximum grows.

A block has 16 queries of a head, a warp four of them. For the scores, a lane has a key: it multiplies the key with the
four queries, four columns at once. For the output, a lane has every 32nd column, and gets the weights of the keys from
the other lanes. Tiles are taken from the last to the first, as in FlashAttention-2: so it may be that a row sees no key
of the first ones. What lies behind the end of a sequence is staged as 0.

---
op = "attention"
entry = "attention<{T}>"
dtypes = ["float32", "float16", "bfloat16"]
args = ["out", "q", "k", "v", "lengths?", "group", "queries", "keys", "head", "causal", "scale"]
dims.heads = "q.shape[1]"
dims.group = "heads // k.shape[1]"
dims.queries = "q.shape[2]"
dims.keys = "k.shape[2]"
dims.head = "q.shape[3]"
dims.width = "ceil_div(head, 4) * 4"
dims.pitch = "width + 4 - width % 8"
requires = ["head <= 256", "heads <= 65535", "q.shape[0] <= 65535"]
grid = ["ceil_div(queries, 16)", "heads", "q.shape[0]"]
block = 128
shared = "4 * (16 * width + 32 * pitch + 32 * width)"
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Rounded by itself: fused with the subtraction of the maximum, the largest score would differ from the maximum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

constexpr int WARPS = 4;
constexpr int EACH = 4;  // queries of a warp
constexpr int QUERIES = WARPS * EACH;
constexpr int KEYS = 32;  // of a tile
constexpr int PARTS = 8;  // columns of a lane: 256 / 32
constexpr unsigned ALL = 0xffffffffu;

// Four neighbours, read at once.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

// Copies `rows` rows as floats, `width` columns of them, with 0 behind the first `there` rows and `head` columns.
template <typename T>
__device__ void stage(float* tile, int pitch, const T* from, int rows, int there, int head, int width) {
  const bool aligned = head % 4 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(Four<T>) == 0;
  for (int i = threadIdx.x; i < rows * (width / 4); i += blockDim.x) {
    const int row = i / (width / 4), col = i % (width / 4) * 4;
    const T* source = from + row * head + col;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (aligned && row < there) {
      const Four<T> read = *reinterpret_cast<const Four<T>*>(source);
      four = make_float4(read.of[0], read.of[1], read.of[2], read.of[3]);
    } else if (row < there) {
      four.x = source[0];
      if (col + 1 < head) four.y = source[1];
      if (col + 2 < head) four.z = source[2];
      if (col + 3 < head) four.w = source[3];
    }
    *reinterpret_cast<float4*>(tile + row * pitch + col) = four;
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
  const int width = (head + 3) / 4 * 4;       // columns as staged
  const int pitch = width + 4 - width % 8;    // an odd number of float4s: neighbouring keys are in different banks
  float* q_tile = reinterpret_cast<float*>(memory);
  float* k_tile = q_tile + QUERIES * width;
  float* v_tile = k_tile + KEYS * pitch;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = blockIdx.x * QUERIES;
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

  float top[EACH], total[EACH], sums[EACH][PARTS] = {};  // total: of this lane's keys only
  for (int i = 0; i < EACH; ++i) {
    top[i] = -INFINITY;
    total[i] = 0.0f;
  }
  stage(q_tile, width, q, QUERIES, count, head, width);
  for (int tile = (end + KEYS - 1) / KEYS - 1; tile >= 0; --tile) {
    const int first = tile * KEYS, there = min(KEYS, end - first);
    stage(k_tile, pitch, k + (long long)first * head, KEYS, there, head, width);
    stage(v_tile, width, v + (long long)first * head, KEYS, there, head, width);
    __syncthreads();

    float weight[EACH] = {};
    for (int d = 0; d < width; d += 4) {
      const float4 key = *reinterpret_cast<const float4*>(k_tile + lane * pitch + d);
      for (int i = 0; i < EACH; ++i) {
        const float4 query = *reinterpret_cast<const float4*>(q_tile + (warp * EACH + i) * width + d);
        weight[i] += query.x * key.x + query.y * key.y + query.z * key.z + query.w * key.w;
      }
    }
    for (int i = 0; i < EACH; ++i) {
      const int last = causal ? min(end - 1, begin + warp * EACH + i + later) : end - 1;
      const float score = first + lane <= last ? product(scale, weight[i]) : -INFINITY;
      const float highest = fmaxf(top[i], warp_max(score));
      const float shift = highest == -INFINITY ? 0.0f : highest;  // nothing seen so far: -Inf minus -Inf is NaN
      const float shrink = expf(top[i] - shift);
      weight[i] = expf(score - shift);
      top[i] = highest;
      total[i] = total[i] * shrink + weight[i];
      for (int part = 0; part < PARTS; ++part) sums[i][part] *= shrink;
    }
    for (int j = 0; j < there; ++j) {
      float one[EACH];
      for (int i = 0; i < EACH; ++i) one[i] = __shfl_sync(ALL, weight[i], j);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const int col = 32 * part + lane;
        if (col >= head) break;
        const float value = v_tile[j * width + col];
        for (int i = 0; i < EACH; ++i) sums[i][part] += one[i] * value;
      }
    }
    __syncthreads();  // the next step overwrites both tiles
  }
  for (int i = 0; i < EACH; ++i) {
    const int row = warp * EACH + i;
    const float sum = warp_sum(total[i]);
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;  // a row that sees nothing is 0
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int col = 32 * part + lane;
      if (row < count && col < head) out[(long long)row * head + col] = T(sums[i][part] * factor);
    }
  }
}
