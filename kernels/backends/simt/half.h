// Functions of half and bfloat16 that NVIDIA's headers have for the device only. Each is rounded once.
#pragma once
#include "reals.h"

namespace simt {
// a * b + c, odd in its last bit where it is not exact, so that rounding it again to 11 or 8 bits rounds once.
inline double fused(double a, double b, double c) {
  double product = a * b, sum = product + c;
  if (!(std::fabs(sum) <= std::numeric_limits<double>::max())) return sum;
  double part = sum - product, error = (product - (sum - part)) + (c - part);
  if (error == 0 || (bits<uint64_t>(sum) & 1)) return sum;
  return std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL);
}
inline float relu(float x) { return x < 0 ? 0.0f : x; }
}  // namespace simt

#define SIMT_FLOAT16(T, T2, WIDE, NARROW, DOUBLE, LOW, HIGH, PAIR)                                          \
  inline T __hfma(T a, T b, T c) { return DOUBLE(simt::fused(WIDE(a), WIDE(b), WIDE(c))); }                 \
  inline T __hfma_rn(T a, T b, T c) { return __hfma(a, b, c); }                                             \
  inline T __hfma_relu(T a, T b, T c) { T r = __hfma(a, b, c); return WIDE(r) < 0 ? NARROW(0.0f) : r; }     \
  inline T __hfma_sat(T a, T b, T c) { return NARROW(saturate(WIDE(__hfma(a, b, c)))); }                    \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return PAIR(__hfma(LOW(a), LOW(b), LOW(c)), __hfma(HIGH(a), HIGH(b), HIGH(c))); } \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                                \
    return PAIR(__hfma_relu(LOW(a), LOW(b), LOW(c)), __hfma_relu(HIGH(a), HIGH(b), HIGH(c)));               \
  }                                                                                                         \
  inline T2 __hcmadd(T2 a, T2 b, T2 c) {                                                                    \
    T real = __hfma(__hneg(HIGH(a)), HIGH(b), __hfma(LOW(a), LOW(b), LOW(c)));                              \
    return PAIR(real, __hfma(HIGH(a), LOW(b), __hfma(LOW(a), HIGH(b), HIGH(c))));                           \
  }
SIMT_FLOAT16(__half, __half2, __half2float, __float2half_rn, __double2half, __low2half, __high2half, __halves2half2)
SIMT_FLOAT16(__nv_bfloat16, __nv_bfloat162, __bfloat162float, __float2bfloat16_rn, __double2bfloat16, __low2bfloat16,
             __high2bfloat16, __halves2bfloat162)
#undef SIMT_FLOAT16

// In double, so that the one rounding is the last.
#define SIMT_OF_ONE(NAME, EXPRESSION)                                                                                \
  inline __half h##NAME(__half h) { double x = __half2float(h); return __double2half(EXPRESSION); }                  \
  inline __nv_bfloat16 h##NAME(__nv_bfloat16 h) { double x = __bfloat162float(h); return __double2bfloat16(EXPRESSION); } \
  inline __half2 h2##NAME(__half2 h) { return __halves2half2(h##NAME(__low2half(h)), h##NAME(__high2half(h))); }     \
  inline __nv_bfloat162 h2##NAME(__nv_bfloat162 h) {                                                                 \
    return __halves2bfloat162(h##NAME(__low2bfloat16(h)), h##NAME(__high2bfloat16(h)));                              \
  }
SIMT_OF_ONE(sqrt, std::sqrt(x))
SIMT_OF_ONE(rsqrt, 1.0 / std::sqrt(x))
SIMT_OF_ONE(rcp, 1.0 / x)
SIMT_OF_ONE(exp, std::exp(x))
SIMT_OF_ONE(exp2, std::exp2(x))
SIMT_OF_ONE(exp10, std::pow(10.0, x))
SIMT_OF_ONE(log, std::log(x))
SIMT_OF_ONE(log2, std::log2(x))
SIMT_OF_ONE(log10, std::log10(x))
SIMT_OF_ONE(sin, std::sin(x))
SIMT_OF_ONE(cos, std::cos(x))
SIMT_OF_ONE(tanh, std::tanh(x))
SIMT_OF_ONE(tanh_approx, std::tanh(x))
SIMT_OF_ONE(ceil, std::ceil(x))
SIMT_OF_ONE(floor, std::floor(x))
SIMT_OF_ONE(rint, std::nearbyint(x))
SIMT_OF_ONE(trunc, std::trunc(x))
#undef SIMT_OF_ONE

#define SIMT_TO_WHOLE(FROM, T, WIDE, SUFFIX, F)                                                       \
  inline int __##FROM##2int_##SUFFIX(T h) { return simt::whole<int>(F(WIDE(h))); }                    \
  inline unsigned __##FROM##2uint_##SUFFIX(T h) { return simt::whole<unsigned>(F(WIDE(h))); }
SIMT_TO_WHOLE(half, __half, __half2float, rn, std::nearbyint)
SIMT_TO_WHOLE(half, __half, __half2float, rd, std::floor)
SIMT_TO_WHOLE(half, __half, __half2float, ru, std::ceil)
SIMT_TO_WHOLE(bfloat16, __nv_bfloat16, __bfloat162float, rn, std::nearbyint)
SIMT_TO_WHOLE(bfloat16, __nv_bfloat16, __bfloat162float, rd, std::floor)
SIMT_TO_WHOLE(bfloat16, __nv_bfloat16, __bfloat162float, ru, std::ceil)
#undef SIMT_TO_WHOLE
inline __half2 h2div(__half2 a, __half2 b) { return __h2div(a, b); }
