// Functions of floats that CUDA has and the host's libm has not, conversions with a named rounding, and the approximate
// intrinsics, which are the host's exact functions here: on a GPU they are less accurate, never more.
#pragma once
#include <fenv.h>

#include "integers.h"

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752); }
inline float erfcxf(float x) { return static_cast<float>(::exp(static_cast<double>(x) * x) * ::erfc(static_cast<double>(x))); }
inline float sinpif(float x) { return static_cast<float>(::sin(3.14159265358979323846 * ::fmod(static_cast<double>(x), 2.0))); }
inline float cospif(float x) { return static_cast<float>(::cos(3.14159265358979323846 * ::fmod(static_cast<double>(x), 2.0))); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float norm3df(float x, float y, float z) { return sqrtf(x * x + y * y + z * z); }
inline float saturate(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return saturate(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return ::sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }

inline float norm4df(float x, float y, float z, float w) { return sqrtf(x * x + y * y + z * z + w * w); }
inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }

// ---- rounding with a direction ---------------------------------------------------------------------------------------

namespace simt {
// f() under a rounding mode of the processor; volatile keeps the compiler from computing it elsewhere.
template <class F>
SIMT_UNSEEN __attribute__((noinline)) auto rounded(int mode, F f) {
  int before = fegetround();
  fesetround(mode);
  volatile auto found = f();
  fesetround(before);
  return static_cast<decltype(f())>(found);
}
}  // namespace simt

#define SIMT_DIRECTED(SUFFIX, MODE)                                                                                    \
  inline float __fadd_##SUFFIX(volatile float a, volatile float b) { return simt::rounded(MODE, [&] { return a + b; }); } \
  inline float __fsub_##SUFFIX(volatile float a, volatile float b) { return simt::rounded(MODE, [&] { return a - b; }); } \
  inline float __fmul_##SUFFIX(volatile float a, volatile float b) { return simt::rounded(MODE, [&] { return a * b; }); } \
  inline float __fdiv_##SUFFIX(volatile float a, volatile float b) { return simt::rounded(MODE, [&] { return a / b; }); } \
  inline float __frcp_##SUFFIX(volatile float a) { return simt::rounded(MODE, [&] { return 1.0f / a; }); }             \
  inline float __fsqrt_##SUFFIX(volatile float a) { return simt::rounded(MODE, [&] { return sqrtf(a); }); }            \
  inline float __fmaf_##SUFFIX(volatile float a, volatile float b, volatile float c) {                                 \
    return simt::rounded(MODE, [&] { return fmaf(a, b, c); });                                                         \
  }                                                                                                                    \
  inline double __dadd_##SUFFIX(volatile double a, volatile double b) { return simt::rounded(MODE, [&] { return a + b; }); } \
  inline double __dmul_##SUFFIX(volatile double a, volatile double b) { return simt::rounded(MODE, [&] { return a * b; }); } \
  inline double __dsub_##SUFFIX(volatile double a, volatile double b) { return simt::rounded(MODE, [&] { return a - b; }); } \
  inline double __ddiv_##SUFFIX(volatile double a, volatile double b) { return simt::rounded(MODE, [&] { return a / b; }); } \
  inline double __drcp_##SUFFIX(volatile double a) { return simt::rounded(MODE, [&] { return 1.0 / a; }); }            \
  inline double __dsqrt_##SUFFIX(volatile double a) { return simt::rounded(MODE, [&] { return ::sqrt(a); }); }         \
  inline double __fma_##SUFFIX(volatile double a, volatile double b, volatile double c) {                              \
    return simt::rounded(MODE, [&] { return ::fma(a, b, c); });                                                        \
  }                                                                                                                    \
  inline float __double2float_##SUFFIX(volatile double a) { return simt::rounded(MODE, [&] { return static_cast<float>(a); }); } \
  inline float __int2float_##SUFFIX(volatile int a) { return simt::rounded(MODE, [&] { return static_cast<float>(a); }); } \
  inline float __uint2float_##SUFFIX(volatile unsigned a) { return simt::rounded(MODE, [&] { return static_cast<float>(a); }); }
SIMT_DIRECTED(rz, FE_TOWARDZERO)
SIMT_DIRECTED(ru, FE_UPWARD)
SIMT_DIRECTED(rd, FE_DOWNWARD)
#undef SIMT_DIRECTED

// ---- bits ------------------------------------------------------------------------------------------------------------

namespace simt {
template <class To, class From>
SIMT_UNSEEN inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
// NaN becomes 0 and what is too large the nearest integer there is, as on the device.
template <class To, class From>
inline To whole(From x) {
  if (x != x) return 0;
  if (x >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}
}  // namespace simt

inline int __float_as_int(float x) { return simt::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return simt::bits<unsigned>(x); }
inline float __int_as_float(int x) { return simt::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return simt::bits<float>(x); }
inline long long __double_as_longlong(double x) { return simt::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return simt::bits<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(simt::bits<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(simt::bits<uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return simt::bits<double>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low));
}

// ---- conversions -----------------------------------------------------------------------------------------------------

#define SIMT_TO_WHOLE(FROM, F, TO, T)                                                   \
  inline T __##FROM##2##TO##_rn(F x) { return simt::whole<T>(std::nearbyint(x)); }      \
  inline T __##FROM##2##TO##_rz(F x) { return simt::whole<T>(std::trunc(x)); }          \
  inline T __##FROM##2##TO##_rd(F x) { return simt::whole<T>(std::floor(x)); }          \
  inline T __##FROM##2##TO##_ru(F x) { return simt::whole<T>(std::ceil(x)); }
SIMT_TO_WHOLE(float, float, int, int)
SIMT_TO_WHOLE(float, float, uint, unsigned)
SIMT_TO_WHOLE(float, float, ll, long long)
SIMT_TO_WHOLE(float, float, ull, unsigned long long)
SIMT_TO_WHOLE(double, double, int, int)
SIMT_TO_WHOLE(double, double, uint, unsigned)
SIMT_TO_WHOLE(double, double, ll, long long)
SIMT_TO_WHOLE(double, double, ull, unsigned long long)
#undef SIMT_TO_WHOLE
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
