// Functions of integers and of bytes packed into a word, and the bits of floats.
#pragma once
#include "keywords.h"

namespace simt {
template <class A, class B>
using Common = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;
}  // namespace simt

// Of mixed types too; of two floats the one that is no NaN.
template <class A, class B>
constexpr simt::Common<A, B> min(A a, B b) {
  using C = simt::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmin(static_cast<C>(a), static_cast<C>(b));
  else return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class A, class B>
constexpr simt::Common<A, B> max(A a, B b) {
  using C = simt::Common<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmax(static_cast<C>(a), static_cast<C>(b));
  else return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }

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
inline int __mul24(int a, int b) { return static_cast<int>(static_cast<int64_t>(a << 8 >> 8) * (b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned __sad(int a, int b, unsigned c) { return c + static_cast<unsigned>(a > b ? a - b : b - a); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b) >> 1); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (by & 31));
}

// ---- bytes and halves of a word ------------------------------------------------------------------------------------

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned which = selector >> (4 * i), byte = static_cast<unsigned>(bytes >> (8 * (which & 7))) & 255u;
    if (which & 8) byte = byte & 128u ? 255u : 0u;  // the sign, spread
    found |= byte << (8 * i);
  }
  return found;
}
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 32; i += 8) sum += static_cast<unsigned>(static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i));
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255u) * (b >> i & 255u);
  return c;
}
inline int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline int __dp2a_lo(int a, int b, int c) {
  return c + static_cast<int16_t>(a) * static_cast<int8_t>(b) + static_cast<int16_t>(a >> 16) * static_cast<int8_t>(b >> 8);
}
inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }

namespace simt {
// f of each lane of two words, lanes of `Lane`'s width; results beyond the lane's width are cut off.
template <class Lane, class F>
constexpr unsigned lanes(unsigned a, unsigned b, F f) {
  constexpr int bits = 8 * sizeof(Lane);
  unsigned found = 0;
  for (int i = 0; i < 32; i += bits) {
    int x = static_cast<Lane>(a >> i), y = static_cast<Lane>(b >> i);
    found |= (static_cast<unsigned>(f(x, y)) & ((1u << bits) - 1u)) << i;
  }
  return found;
}
template <class Lane>
constexpr int clamped(int x) {
  int low = std::numeric_limits<Lane>::min(), high = std::numeric_limits<Lane>::max();
  return x < low ? low : x > high ? high : x;
}
}  // namespace simt

#define SIMT_LANES(N, SIGNED, UNSIGNED)                                                                          \
  inline unsigned __vadd##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x + y; }); } \
  inline unsigned __vsub##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x - y; }); } \
  inline unsigned __vaddss##N(unsigned a, unsigned b) {                                                                \
    return simt::lanes<SIGNED>(a, b, [](int x, int y) { return simt::clamped<SIGNED>(x + y); });                       \
  }                                                                                                                    \
  inline unsigned __vsubss##N(unsigned a, unsigned b) {                                                                \
    return simt::lanes<SIGNED>(a, b, [](int x, int y) { return simt::clamped<SIGNED>(x - y); });                       \
  }                                                                                                                    \
  inline unsigned __vaddus##N(unsigned a, unsigned b) {                                                                \
    return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return simt::clamped<UNSIGNED>(x + y); });                   \
  }                                                                                                                    \
  inline unsigned __vsubus##N(unsigned a, unsigned b) {                                                                \
    return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return simt::clamped<UNSIGNED>(x - y); });                   \
  }                                                                                                                    \
  inline unsigned __vavgu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return (x + y + 1) / 2; }); } \
  inline unsigned __vmaxs##N(unsigned a, unsigned b) { return simt::lanes<SIGNED>(a, b, [](int x, int y) { return x > y ? x : y; }); }   \
  inline unsigned __vmins##N(unsigned a, unsigned b) { return simt::lanes<SIGNED>(a, b, [](int x, int y) { return x < y ? x : y; }); }   \
  inline unsigned __vmaxu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x > y ? x : y; }); } \
  inline unsigned __vminu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x < y ? x : y; }); } \
  inline unsigned __vcmpeq##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x == y ? -1 : 0; }); }  \
  inline unsigned __vcmpne##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x != y ? -1 : 0; }); }  \
  inline unsigned __vcmpgts##N(unsigned a, unsigned b) { return simt::lanes<SIGNED>(a, b, [](int x, int y) { return x > y ? -1 : 0; }); }    \
  inline unsigned __vcmpgtu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x > y ? -1 : 0; }); }  \
  inline unsigned __vcmplts##N(unsigned a, unsigned b) { return simt::lanes<SIGNED>(a, b, [](int x, int y) { return x < y ? -1 : 0; }); }    \
  inline unsigned __vcmpges##N(unsigned a, unsigned b) { return simt::lanes<SIGNED>(a, b, [](int x, int y) { return x >= y ? -1 : 0; }); }   \
  inline unsigned __vcmpgeu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x >= y ? -1 : 0; }); } \
  inline unsigned __vabsdiffu##N(unsigned a, unsigned b) { return simt::lanes<UNSIGNED>(a, b, [](int x, int y) { return x > y ? x - y : y - x; }); } \
  inline unsigned __vneg##N(unsigned a) { return __vsub##N(0u, a); }                                                   \
  inline unsigned __vabs##N(unsigned a) { return simt::lanes<SIGNED>(a, 0u, [](int x, int) { return x < 0 ? -x : x; }); }
SIMT_LANES(4, int8_t, uint8_t)
SIMT_LANES(2, int16_t, uint16_t)
#undef SIMT_LANES
