// __half and __nv_bfloat16: every operation is done in float and rounded once, to nearest even, as the device does.
//
// float is wide enough (24 bits >= 2 p + 2) for sums, products, quotients and roots of either type to round as if they
// had been rounded only once.
#pragma once
#include "device.h"

namespace serial {

struct Half {
  static uint16_t narrow(float value) {
    uint32_t u = bit_cast<uint32_t>(value), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return 0x7fff;
    if (u >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
    if (u < 0x38800000u)  // below 2**-14: adding 1/2 leaves multiples of 2**-24 in the low bits, rounded by the sum
      return static_cast<uint16_t>(sign | (bit_cast<uint32_t>(bit_cast<float>(u) + 0.5f) - 0x3f000000u));
    u += 0xfffu + (u >> 13 & 1u);
    return static_cast<uint16_t>(sign | ((u - 0x38000000u) >> 13));
  }
  static float widen(uint16_t bits) {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | rest << 13);
    if (rest < 0x400u) return bit_cast<float>(sign | bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24f));
    return bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  }
};

struct Brain {
  static uint16_t narrow(float value) {
    uint32_t u = bit_cast<uint32_t>(value);
    if (value != value) return 0x7fff;
    return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  static float widen(uint16_t bits) { return bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// A double as a float that still rounds to the right side: the last bit is set if anything was cut off.
inline float to_odd(double value) {
  float near = static_cast<float>(value);
  uint32_t u = bit_cast<uint32_t>(near);
  if (near == value || value != value || u & 1u) return near;
  if (near - near != 0.0f) return near;  // overflowed: no narrower type holds it either
  bool above = fabs(static_cast<double>(near)) > fabs(value);
  return bit_cast<float>(above ? u - 1u : u + 1u);
}

template <class Kind>
struct Narrow {
  uint16_t bits;

  Narrow() = default;
  Narrow(float v) : bits(Kind::narrow(v)) {}
  Narrow(double v) : bits(Kind::narrow(to_odd(v))) {}
  template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
  Narrow(I v) : Narrow(static_cast<double>(v)) {}
  operator float() const { return Kind::widen(bits); }

  float wide() const { return Kind::widen(bits); }
  friend Narrow operator+(Narrow a, Narrow b) { return a.wide() + b.wide(); }
  friend Narrow operator-(Narrow a, Narrow b) { return a.wide() - b.wide(); }
  friend Narrow operator*(Narrow a, Narrow b) { return a.wide() * b.wide(); }
  friend Narrow operator/(Narrow a, Narrow b) { return a.wide() / b.wide(); }
  friend Narrow operator-(Narrow a) { return -a.wide(); }
  friend Narrow operator+(Narrow a) { return a; }
  friend Narrow& operator+=(Narrow& a, Narrow b) { return a = a + b; }
  friend Narrow& operator-=(Narrow& a, Narrow b) { return a = a - b; }
  friend Narrow& operator*=(Narrow& a, Narrow b) { return a = a * b; }
  friend Narrow& operator/=(Narrow& a, Narrow b) { return a = a / b; }
  friend bool operator==(Narrow a, Narrow b) { return a.wide() == b.wide(); }
  friend bool operator!=(Narrow a, Narrow b) { return a.wide() != b.wide(); }
  friend bool operator<(Narrow a, Narrow b) { return a.wide() < b.wide(); }
  friend bool operator>(Narrow a, Narrow b) { return a.wide() > b.wide(); }
  friend bool operator<=(Narrow a, Narrow b) { return a.wide() <= b.wide(); }
  friend bool operator>=(Narrow a, Narrow b) { return a.wide() >= b.wide(); }

  friend Narrow __hadd(Narrow a, Narrow b) { return a + b; }
  friend Narrow __hsub(Narrow a, Narrow b) { return a - b; }
  friend Narrow __hmul(Narrow a, Narrow b) { return a * b; }
  friend Narrow __hdiv(Narrow a, Narrow b) { return a / b; }
  friend Narrow __hneg(Narrow a) { return -a; }
  friend Narrow __habs(Narrow a) { return fabsf(a.wide()); }
  friend Narrow __hmax(Narrow a, Narrow b) { return fmaxf(a.wide(), b.wide()); }
  friend Narrow __hmin(Narrow a, Narrow b) { return fminf(a.wide(), b.wide()); }
  friend Narrow __hfma(Narrow a, Narrow b, Narrow c) {  // the product is exact in double
    return static_cast<double>(a.wide()) * static_cast<double>(b.wide()) + static_cast<double>(c.wide());
  }
  friend bool __heq(Narrow a, Narrow b) { return a == b; }
  friend bool __hne(Narrow a, Narrow b) { return a != b; }
  friend bool __hlt(Narrow a, Narrow b) { return a < b; }
  friend bool __hle(Narrow a, Narrow b) { return a <= b; }
  friend bool __hgt(Narrow a, Narrow b) { return a > b; }
  friend bool __hge(Narrow a, Narrow b) { return a >= b; }
  friend bool __hisnan(Narrow a) { return a.wide() != a.wide(); }
  friend int __hisinf(Narrow a) { return isinf(a.wide()) ? (a.wide() > 0 ? 1 : -1) : 0; }
  friend Narrow hexp(Narrow a) { return expf(a.wide()); }
  friend Narrow hexp2(Narrow a) { return exp2f(a.wide()); }
  friend Narrow hlog(Narrow a) { return logf(a.wide()); }
  friend Narrow hsqrt(Narrow a) { return sqrtf(a.wide()); }
  friend Narrow hrsqrt(Narrow a) { return rsqrtf(a.wide()); }
  friend Narrow hrcp(Narrow a) { return 1.0f / a.wide(); }
  friend Narrow htanh(Narrow a) { return tanhf(a.wide()); }
};

template <class Kind>
struct alignas(4) Pair {
  Narrow<Kind> x, y;

  friend Pair __hadd2(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
  friend Pair __hsub2(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
  friend Pair __hmul2(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
  friend Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
  friend Pair operator+(Pair a, Pair b) { return __hadd2(a, b); }
  friend Pair operator-(Pair a, Pair b) { return __hsub2(a, b); }
  friend Pair operator*(Pair a, Pair b) { return __hmul2(a, b); }
  friend float __low2float(Pair a) { return a.x; }
  friend float __high2float(Pair a) { return a.y; }
};

}  // namespace serial

using __half = serial::Narrow<serial::Half>;
using half = __half;
using __half2 = serial::Pair<serial::Half>;
using half2 = __half2;
using __nv_bfloat16 = serial::Narrow<serial::Brain>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = serial::Pair<serial::Brain>;
using nv_bfloat162 = __nv_bfloat162;

inline float __half2float(__half a) { return a; }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }
inline __half __int2half_rn(int a) { return a; }
inline int __half2int_rz(__half a) { return __float2int_rz(a); }
inline int __half2int_rn(__half a) { return __float2int_rn(a); }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline __half __ushort_as_half(unsigned short a) { return serial::bit_cast<__half>(a); }

inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline __nv_bfloat16 __double2bfloat16(double a) { return a; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return serial::bit_cast<__nv_bfloat16>(a); }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {a, a}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
