// Functions of floats that CUDA has and the host's libm has not, conversions with a named rounding, and the approximate
// intrinsics, which are the host's exact functions here: on a GPU they are less accurate, never more.
#pragma once
#include <fenv.h>

#include "integers.h"

// What fminf and the like mean in a kernel.
inline float simt_fminf(float a, float b) { return simt::least_number(a, b); }
inline float simt_fmaxf(float a, float b) { return simt::greatest_number(a, b); }
template <class A, class B>
constexpr simt::Common<A, B> simt_fmin(A a, B b) {
  using C = std::conditional_t<std::is_same_v<simt::Common<A, B>, float>, float, double>;
  return simt::least_number<C>(static_cast<C>(a), static_cast<C>(b));
}
template <class A, class B>
constexpr simt::Common<A, B> simt_fmax(A a, B b) {
  using C = std::conditional_t<std::is_same_v<simt::Common<A, B>, float>, float, double>;
  return simt::greatest_number<C>(static_cast<C>(a), static_cast<C>(b));
}
namespace std {
using ::simt_fmax, ::simt_fmaxf, ::simt_fmin, ::simt_fminf;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
// Of the inverse of erfc: Halley's steps from the first term of its expansion.
inline double erfcinv(double x) {
  if (!(x > 0 && x < 2)) return x == 0 ? HUGE_VAL : x == 2 ? -HUGE_VAL : NAN;
  double small = x < 1 ? x : 2 - x, l = ::log(small / 2), r = ::sqrt(-2 * l);
  double y = (r - (2.515517 + r * (0.802853 + r * 0.010328)) / (1 + r * (1.432788 + r * (0.189269 + r * 0.001308)))) / 1.4142135623730951;
  for (int i = 0; i < 4; ++i) {
    double step = (::erfc(y) - small) / (1.1283791670955126 * ::exp(-y * y));
    y += step / (1 + y * step);
  }
  return x < 1 ? y : -y;
}
inline double erfinv(double x) {
  double y = x < 0 ? -erfcinv(1 + x) : erfcinv(1 - x);
  return ::fabs(x) < 0.9 ? y - (::erf(y) - x) / (1.1283791670955126 * ::exp(-y * y)) : y;
}
inline double normcdfinv(double x) { return -1.4142135623730951 * erfcinv(2 * x); }
inline float erfcinvf(float x) { return static_cast<float>(erfcinv(x)); }
inline float erfinvf(float x) { return static_cast<float>(erfinv(x)); }
inline float normcdfinvf(float x) { return static_cast<float>(normcdfinv(x)); }
inline float cyl_bessel_i0f(float x) { return static_cast<float>(std::cyl_bessel_i(0.0, ::fabs(static_cast<double>(x)))); }
inline float cyl_bessel_i1f(float x) { return ::copysignf(static_cast<float>(std::cyl_bessel_i(1.0, ::fabs(static_cast<double>(x)))), x); }
inline float fdividef(float a, float b) { return a / b; }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752); }
inline float erfcxf(float x) { return static_cast<float>(::exp(static_cast<double>(x) * x) * ::erfc(static_cast<double>(x))); }
// To quarter turns, which are exact: the rest is at most 1/4.
inline double sinpi(double x) {
  double turn = ::fmod(x, 2.0), quarters = ::nearbyint(2.0 * turn), rest = 3.14159265358979323846 * (turn - 0.5 * quarters);
  switch (static_cast<int>(quarters) & 3) {
    case 0: return quarters == 0.0 ? ::copysign(::sin(rest), x) : ::sin(rest);
    case 1: return ::cos(rest);
    case 2: return -::sin(rest);
    default: return -::cos(rest);
  }
}
inline double cospi(double x) {
  double turn = ::fmod(::fabs(x), 2.0), quarters = ::nearbyint(2.0 * turn), rest = 3.14159265358979323846 * (turn - 0.5 * quarters);
  switch (static_cast<int>(quarters) & 3) {
    case 0: return ::cos(rest);
    case 1: return -::sin(rest);
    case 2: return -::cos(rest);
    default: return ::sin(rest);
  }
}
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
inline void sincospi(float x, float* s, float* c) { *s = static_cast<float>(sinpi(x)), *c = static_cast<float>(cospi(x)); }
inline void sincos(float x, float* s, float* c) { ::sincosf(x, s, c); }
inline float sinpif(float x) { return static_cast<float>(sinpi(x)); }
inline float cospif(float x) { return static_cast<float>(cospi(x)); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
// Lengths neither overflow nor vanish on the way.
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline double norm4d(double x, double y, double z, double w) { return ::hypot(::hypot(x, y), ::hypot(z, w)); }
inline double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
inline double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
inline float rhypotf(float x, float y) { return static_cast<float>(rhypot(x, y)); }
inline float norm3df(float x, float y, float z) { return static_cast<float>(norm3d(x, y, z)); }
inline float norm4df(float x, float y, float z, float w) { return static_cast<float>(norm4d(x, y, z, w)); }
inline float rnorm3df(float x, float y, float z) { return static_cast<float>(rnorm3d(x, y, z)); }
inline float rnorm4df(float x, float y, float z, float w) { return static_cast<float>(rnorm4d(x, y, z, w)); }
inline float saturate(float x) { return simt_fminf(simt_fmaxf(x, 0.0f), 1.0f); }

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
inline float __fmaf_ieee_rn(float a, float b, float c) { return fmaf(a, b, c); }
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
// The processor converts signed integers only: of two halves, whose sum is rounded once.
template <class To>
SIMT_UNSEEN To of_unsigned(volatile unsigned long long a, int mode) {
  volatile double high = static_cast<double>(static_cast<long long>(a >> 32)) * 4294967296.0;
  volatile double low = static_cast<double>(static_cast<long long>(a & 0xffffffffu));
  if constexpr (sizeof(To) == 8) return rounded(mode, [&] { return high + low; });
  volatile long double both = static_cast<long double>(high) + static_cast<long double>(low);  // exact: 64 bits
  return rounded(mode, [&] { return static_cast<To>(both); });
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
  inline float __uint2float_##SUFFIX(volatile unsigned a) { return simt::rounded(MODE, [&] { return static_cast<float>(a); }); } \
  inline float __ll2float_##SUFFIX(volatile long long a) { return simt::rounded(MODE, [&] { return static_cast<float>(a); }); } \
  inline double __ll2double_##SUFFIX(volatile long long a) { return simt::rounded(MODE, [&] { return static_cast<double>(a); }); } \
  inline float __ull2float_##SUFFIX(volatile unsigned long long a) { return simt::of_unsigned<float>(a, MODE); }       \
  inline double __ull2double_##SUFFIX(volatile unsigned long long a) { return simt::of_unsigned<double>(a, MODE); }    \
  inline float __fmaf_ieee_##SUFFIX(float a, float b, float c) { return __fmaf_##SUFFIX(a, b, c); }
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
// As on the device: what is too large becomes the nearest integer there is; NaN becomes 0, or the highest bit alone if
// either type has 64 bits.
template <class To, class From>
inline To whole(From x) {
  if (x != x) return sizeof(From) < 8 && sizeof(To) < 8 ? To{0} : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
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
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
