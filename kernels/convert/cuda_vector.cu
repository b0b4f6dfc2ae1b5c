/*
Conversion between float types, to nearest even, up to 16 bytes a thread and step, in a loop over the whole grid.

Every type goes through float32, which holds all numbers of the narrower ones, so that it is rounded once. What is
beyond the range becomes Inf (NaN in float8_e4m3fn), or the largest number if `saturate` is set; NaN stays NaN.
---
op = "convert"
entry = "convert<{T}, {to}>"
choices = { to = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"] }
dtypes = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
args = ["out", "x", "saturate", "n"]
dims = { n = "x.size" }
grid = "min(ceil_div(n, 2048), 1056)"
block = 256
---
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

// The number within a range that is nearest to a value; of NaN, NaN.
__device__ inline float clamped(float v, float top) {
  if (v > top) return top;
  return v < -top ? -top : v;
}

__device__ inline __nv_fp8_storage_t narrowed(float v, bool saturate, __nv_fp8_interpretation_t form) {
  return __nv_cvt_float_to_fp8(v, saturate ? __NV_SATFINITE : __NV_NOSAT, form);
}

template <typename To>
__device__ To rounded(float v, bool saturate) {
  To result;
  if constexpr (std::is_same_v<To, __half>) {
    result = __float2half_rn(saturate ? clamped(v, 65504.0f) : v);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    result = __float2bfloat16_rn(saturate ? clamped(v, 0x1.fep127f) : v);
  } else if constexpr (std::is_same_v<To, __nv_fp8_e4m3>) {
    result.__x = narrowed(v, saturate, __NV_E4M3);
  } else if constexpr (std::is_same_v<To, __nv_fp8_e5m2>) {
    result.__x = narrowed(v, saturate, __NV_E5M2);
  } else {
    result = saturate ? clamped(v, 0x1.fffffep127f) : v;
  }
  return result;
}

template <typename From, typename To>
__global__ void __launch_bounds__(256)
    convert(To* __restrict__ out, const From* __restrict__ x, bool saturate, long long n) {
  constexpr int count = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  using Given = Pack<From, count>;
  using Wanted = Pack<To, count>;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const bool aligned = reinterpret_cast<uintptr_t>(x) % sizeof(Given) == 0 &&
                       reinterpret_cast<uintptr_t>(out) % sizeof(Wanted) == 0;
  const long long packs = aligned ? n / count : 0;

  for (long long i = first; i < packs; i += stride) {
    const Given given = reinterpret_cast<const Given*>(x)[i];
    Wanted wanted;
#pragma unroll
    for (int j = 0; j < count; ++j) wanted.at[j] = rounded<To>(static_cast<float>(given.at[j]), saturate);
    reinterpret_cast<Wanted*>(out)[i] = wanted;
  }
  for (long long i = packs * count + first; i < n; i += stride) {
    out[i] = rounded<To>(static_cast<float>(x[i]), saturate);
  }
}
