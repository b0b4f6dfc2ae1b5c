// What CUDA C++ has and C++ has not, whatever runs the threads: qualifiers, vector types, functions of the device.
//
// Approximate intrinsics (__expf, __fdividef, ...) are the exact functions of the host's libm: on a GPU they are less
// accurate, never more.
#pragma once
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <limits>
#include <memory>  // before __noinline__ is defined: it has attributes of that name
#include <type_traits>
#include <utility>

#define KERNEL_ASSAY 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// ---- vector types, with the alignment that CUDA gives them ---------------------------------------------------------

namespace serial {
constexpr size_t alignment(size_t bytes) { return bytes < 16 ? bytes : 16; }
}  // namespace serial

#define SERIAL_VECTORS(T, V)                                               \
  struct V##1 {                                                            \
    T x;                                                                   \
  };                                                                       \
  struct alignas(serial::alignment(2 * sizeof(T))) V##2 {                  \
    T x, y;                                                                \
  };                                                                       \
  struct V##3 {                                                            \
    T x, y, z;                                                             \
  };                                                                       \
  struct alignas(serial::alignment(4 * sizeof(T))) V##4 {                  \
    T x, y, z, w;                                                          \
  };                                                                       \
  inline V##1 make_##V##1(T x) { return {x}; }                             \
  inline V##2 make_##V##2(T x, T y) { return {x, y}; }                     \
  inline V##3 make_##V##3(T x, T y, T z) { return {x, y, z}; }             \
  inline V##4 make_##V##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SERIAL_VECTORS(signed char, char)
SERIAL_VECTORS(unsigned char, uchar)
SERIAL_VECTORS(short, short)
SERIAL_VECTORS(unsigned short, ushort)
SERIAL_VECTORS(int, int)
SERIAL_VECTORS(unsigned int, uint)
SERIAL_VECTORS(long, long)
SERIAL_VECTORS(unsigned long, ulong)
SERIAL_VECTORS(long long, longlong)
SERIAL_VECTORS(unsigned long long, ulonglong)
SERIAL_VECTORS(float, float)
SERIAL_VECTORS(double, double)

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// ---- minimum and maximum: of mixed types too; of two floats the one that is no NaN ---------------------------------

namespace serial {
template <class A, class B>
using Common = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;

template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace serial

template <class A, class B>
serial::Common<A, B> min(A a, B b) {
  using C = serial::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmin(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class A, class B>
serial::Common<A, B> max(A a, B b) {
  using C = serial::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmax(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
inline unsigned int umin(unsigned int a, unsigned int b) { return a < b ? a : b; }
inline unsigned int umax(unsigned int a, unsigned int b) { return a > b ? a : b; }

// ---- functions of the device ---------------------------------------------------------------------------------------

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
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
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

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
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }

inline int __float_as_int(float x) { return serial::bit_cast<int>(x); }
inline unsigned int __float_as_uint(float x) { return serial::bit_cast<unsigned int>(x); }
inline float __int_as_float(int x) { return serial::bit_cast<float>(x); }
inline float __uint_as_float(unsigned int x) { return serial::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return serial::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return serial::bit_cast<double>(x); }

namespace serial {
// NaN becomes 0 and what is too large the nearest integer there is, as on the device.
template <class To, class From>
To whole(From x) {
  constexpr From top = static_cast<From>(std::numeric_limits<To>::max());
  if (x != x) return 0;
  if (x >= top) return std::numeric_limits<To>::max();
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}
}  // namespace serial

inline int __float2int_rn(float x) { return serial::whole<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return serial::whole<int>(truncf(x)); }
inline int __float2int_rd(float x) { return serial::whole<int>(floorf(x)); }
inline int __float2int_ru(float x) { return serial::whole<int>(ceilf(x)); }
inline unsigned int __float2uint_rn(float x) { return serial::whole<unsigned int>(nearbyintf(x)); }
inline unsigned int __float2uint_rz(float x) { return serial::whole<unsigned int>(truncf(x)); }
inline int __double2int_rn(double x) { return serial::whole<int>(::nearbyint(x)); }
inline int __double2int_rz(double x) { return serial::whole<int>(::trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __mul24(int a, int b) { return a * b; }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}

template <class T>
T __ldg(const T* p) { return *p; }
template <class T>
T __ldca(const T* p) { return *p; }
template <class T>
T __ldcg(const T* p) { return *p; }
template <class T>
T __ldcs(const T* p) { return *p; }
template <class T>
T __ldlu(const T* p) { return *p; }
template <class T>
void __stcg(T* p, T v) { *p = v; }
template <class T>
void __stcs(T* p, T v) { *p = v; }
template <class T>
void __stwb(T* p, T v) { *p = v; }
template <class T>
void __stwt(T* p, T v) { *p = v; }

inline void __trap() { abort(); }

#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_PI_F 3.141592654f
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI 3.1415926535897931

#include "half.h"
