// Functions of integers.
#pragma once
#include "keywords.h"

namespace simt {
template <class A, class B>
using Common = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;

// Of two floats the one that is no NaN, be it a signalling one, of which the host's fmin and fmax make a NaN; -0 is less
// than +0.
template <class F>
constexpr F least_number(F a, F b) {
  if (a != a) return b;
  return b < a || (a == b && __builtin_signbit(b)) ? b : a;
}
template <class F>
constexpr F greatest_number(F a, F b) {
  if (a != a) return b;
  return b > a || (a == b && __builtin_signbit(a)) ? b : a;
}
}  // namespace simt

// Of mixed types too.
template <class A, class B>
constexpr simt::Common<A, B> min(A a, B b) {
  using C = simt::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return simt::least_number<C>(static_cast<C>(a), static_cast<C>(b));
  else return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class A, class B>
constexpr simt::Common<A, B> max(A a, B b) {
  using C = simt::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return simt::greatest_number<C>(static_cast<C>(a), static_cast<C>(b));
  else return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long llmin(long long a, long long b) { return a < b ? a : b; }
inline long long llmax(long long a, long long b) { return a > b ? a : b; }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
// The place of the n-th set bit from `base` on: upwards if n is positive, downwards if negative; all ones if there is none.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return mask >> base & 1u ? base : ~0u;
  int step = n > 0 ? 1 : -1, left = n > 0 ? n : -n;
  for (int i = static_cast<int>(base); i >= 0 && i < 32; i += step)
    if ((mask >> i & 1u) && --left == 0) return static_cast<unsigned>(i);
  return ~0u;
}
inline int __mul24(int a, int b) { return static_cast<int>(static_cast<int64_t>(a << 8 >> 8) * (b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>((static_cast<__int128>(a) * b) >> 64); }
inline unsigned __sad(int a, int b, unsigned c) { return c + static_cast<unsigned>(a > b ? a - b : b - a); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) + b + 1) >> 1); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (by & 31));
}
// Clamped to 32, where the others wrap.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? high : __funnelshift_r(low, high, by);
}
