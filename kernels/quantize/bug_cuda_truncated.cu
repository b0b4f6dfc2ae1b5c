/*
Bug: quotients are cut off towards zero where they should be rounded.

Otherwise it is cuda_eight_lanes.cu.

---
op = "quantize"
entry = "quantize<{format}>"
choices = { format = ["q8_0", "q8_1"] }
args = ["out", "x", "blocks"]
dims = { blocks = "x.size // 32" }
requires = ["out.address % 4 == 0"]
grid = "ceil_div(blocks, 16)"
block = 128
planted = "mismatch"
---
*/
#include <cuda_fp16.h>
#include <stdint.h>

__device__ float most_of_eight(float v) {
  for (int step = 4; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, step));
  return v;
}

__device__ float sum_of_eight(float v) {
  for (int step = 4; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
  return v;
}

__device__ float4 four_at(const float* x) {
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) return *reinterpret_cast<const float4*>(x);
  return make_float4(x[0], x[1], x[2], x[3]);
}

__device__ uint16_t half_bits(float value) { return __half_as_ushort(__float2half_rn(value)); }

struct q8_0 {
  static __device__ void store(uint8_t* out, int64_t block, int part, float d, float, uint32_t quants) {
    uint16_t* halves = reinterpret_cast<uint16_t*>(out + block * 34);
    if (part == 0) halves[0] = half_bits(d);
    halves[1 + 2 * part] = static_cast<uint16_t>(quants);
    halves[2 + 2 * part] = static_cast<uint16_t>(quants >> 16);
  }
};

struct q8_1 {
  static __device__ void store(uint8_t* out, int64_t block, int part, float d, float sum, uint32_t quants) {
    uint32_t* words = reinterpret_cast<uint32_t*>(out + block * 36);
    if (part == 0) words[0] = half_bits(d) | static_cast<uint32_t>(half_bits(sum)) << 16;
    words[1 + part] = quants;
  }
};

template <typename Format>
__global__ void quantize(uint8_t* __restrict__ out, const float* __restrict__ x, int64_t blocks) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  float4 v = i / 8 < blocks ? four_at(x + 4 * i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float most = most_of_eight(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
  float sum = sum_of_eight((v.x + v.y) + (v.z + v.w));
  float d = most / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  uint32_t quants = 0;
  const float four[4] = {v.x, v.y, v.z, v.w};
  for (int k = 0; k < 4; ++k) quants |= (__float2int_rz(four[k] * inverse) & 0xffu) << 8 * k;
  if (i / 8 < blocks) Format::store(out, i / 8, static_cast<int>(i % 8), d, sum, quants);
}
