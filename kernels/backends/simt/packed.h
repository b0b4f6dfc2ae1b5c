// Functions of the bytes and halves packed into a word.
#pragma once
#include "integers.h"

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned which = selector >> (4 * i) & 7;  // the fourth bit means nothing here, as it does in PTX's prmt
    found |= (static_cast<unsigned>(bytes >> (8 * which)) & 255u) << (8 * i);
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
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + (a & 0xffffu) * (b & 255u) + (a >> 16) * (b >> 8 & 255u);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }
inline int __dp2a_lo(short2 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y; }
inline int __dp2a_hi(short2 a, char4 b, int c) { return c + a.x * b.z + a.y * b.w; }
inline unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) { return c + a.x * b.x + a.y * b.y; }
inline unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) { return c + a.x * b.z + a.y * b.w; }

namespace simt {
// f of each lane of the words, lanes of `Lane`'s width; results beyond the lane's width are cut off.
template <class Lane, class F, class... Words>
constexpr unsigned lanes(F f, Words... words) {
  constexpr int bits = 8 * sizeof(Lane);
  unsigned found = 0;
  for (int i = 0; i < 32; i += bits) found |= (static_cast<unsigned>(f(static_cast<Lane>(words >> i)...)) & ((1u << bits) - 1u)) << i;
  return found;
}
template <class Lane>
constexpr int clamped(int x) {
  int low = std::numeric_limits<Lane>::min(), high = std::numeric_limits<Lane>::max();
  return x < low ? low : x > high ? high : x;
}
}  // namespace simt

#define SIMT_BINARY(NAME, LANE, EXPRESSION) \
  inline unsigned NAME(unsigned a, unsigned b) { return simt::lanes<LANE>([](int x, int y) { return EXPRESSION; }, a, b); }
#define SIMT_UNARY(NAME, LANE, EXPRESSION) \
  inline unsigned NAME(unsigned a) { return simt::lanes<LANE>([](int x) { return EXPRESSION; }, a); }
// A comparison as a mask, and as 0 or 1.
#define SIMT_COMPARISON(NAME, N, LANE, OPERATOR)                \
  SIMT_BINARY(__vcmp##NAME##N, LANE, x OPERATOR y ? -1 : 0)     \
  SIMT_BINARY(__vset##NAME##N, LANE, x OPERATOR y ? 1 : 0)
#define SIMT_SUM_OF_DISTANCES(NAME, LANE)                                                              \
  inline unsigned NAME(unsigned a, unsigned b) {                                                       \
    unsigned sum = 0;                                                                                  \
    simt::lanes<LANE>([&](int x, int y) { return sum += static_cast<unsigned>(x > y ? x - y : y - x); }, a, b); \
    return sum;                                                                                        \
  }
#define SIMT_LANES(N, SIGNED, UNSIGNED)                                                 \
  SIMT_BINARY(__vadd##N, UNSIGNED, x + y)                                               \
  SIMT_BINARY(__vsub##N, UNSIGNED, x - y)                                               \
  SIMT_BINARY(__vaddss##N, SIGNED, simt::clamped<SIGNED>(x + y))                        \
  SIMT_BINARY(__vsubss##N, SIGNED, simt::clamped<SIGNED>(x - y))                        \
  SIMT_BINARY(__vaddus##N, UNSIGNED, simt::clamped<UNSIGNED>(x + y))                    \
  SIMT_BINARY(__vsubus##N, UNSIGNED, simt::clamped<UNSIGNED>(x - y))                    \
  SIMT_BINARY(__vavgs##N, SIGNED, (x + y + (x + y >= 0)) >> 1)                          \
  SIMT_BINARY(__vavgu##N, UNSIGNED, (x + y + 1) / 2)                                    \
  SIMT_BINARY(__vhaddu##N, UNSIGNED, (x + y) / 2)                                       \
  SIMT_BINARY(__vmaxs##N, SIGNED, x > y ? x : y)                                        \
  SIMT_BINARY(__vmins##N, SIGNED, x < y ? x : y)                                        \
  SIMT_BINARY(__vmaxu##N, UNSIGNED, x > y ? x : y)                                      \
  SIMT_BINARY(__vminu##N, UNSIGNED, x < y ? x : y)                                      \
  SIMT_BINARY(__vabsdiffs##N, SIGNED, x > y ? x - y : y - x)                            \
  SIMT_BINARY(__vabsdiffu##N, UNSIGNED, x > y ? x - y : y - x)                          \
  SIMT_SUM_OF_DISTANCES(__vsads##N, SIGNED)                                             \
  SIMT_SUM_OF_DISTANCES(__vsadu##N, UNSIGNED)                                           \
  SIMT_COMPARISON(eq, N, UNSIGNED, ==)                                                  \
  SIMT_COMPARISON(ne, N, UNSIGNED, !=)                                                  \
  SIMT_COMPARISON(ges, N, SIGNED, >=)                                                   \
  SIMT_COMPARISON(geu, N, UNSIGNED, >=)                                                 \
  SIMT_COMPARISON(gts, N, SIGNED, >)                                                    \
  SIMT_COMPARISON(gtu, N, UNSIGNED, >)                                                  \
  SIMT_COMPARISON(les, N, SIGNED, <=)                                                   \
  SIMT_COMPARISON(leu, N, UNSIGNED, <=)                                                 \
  SIMT_COMPARISON(lts, N, SIGNED, <)                                                    \
  SIMT_COMPARISON(ltu, N, UNSIGNED, <)                                                  \
  SIMT_UNARY(__vneg##N, SIGNED, -x)                                                     \
  SIMT_UNARY(__vnegss##N, SIGNED, simt::clamped<SIGNED>(-x))                            \
  SIMT_UNARY(__vabs##N, SIGNED, x < 0 ? -x : x)                                         \
  SIMT_UNARY(__vabsss##N, SIGNED, simt::clamped<SIGNED>(x < 0 ? -x : x))
SIMT_LANES(4, int8_t, uint8_t)
SIMT_LANES(2, int16_t, uint16_t)
#undef SIMT_LANES
#undef SIMT_COMPARISON
#undef SIMT_SUM_OF_DISTANCES
#undef SIMT_BINARY
#undef SIMT_UNARY

// ---- two steps of dynamic programming at once, of a word or of its halves --------------------------------------------

namespace simt {
template <class T>
constexpr T sum(T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }  // wraps around
template <class T>
constexpr T least(T a, T b) { return a < b ? a : b; }
template <class T>
constexpr T most(T a, T b) { return a > b ? a : b; }
}  // namespace simt

#define SIMT_STEPS_OF(TYPE, LANE, WORD, ONE)                                                                           \
  inline WORD __viaddmax_##TYPE(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(simt::sum<LANE>(x, y), z), a, b, c); }  \
  inline WORD __viaddmin_##TYPE(WORD a, WORD b, WORD c) { return ONE(simt::least<LANE>(simt::sum<LANE>(x, y), z), a, b, c); } \
  inline WORD __vimax3_##TYPE(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(simt::most<LANE>(x, y), z), a, b, c); }    \
  inline WORD __vimin3_##TYPE(WORD a, WORD b, WORD c) { return ONE(simt::least<LANE>(simt::least<LANE>(x, y), z), a, b, c); }
// Negative results become 0.
#define SIMT_STEPS_ABOVE_ZERO(TYPE, LANE, WORD, ONE)                                                                   \
  inline WORD __vimax_##TYPE##_relu(WORD a, WORD b) { return ONE(simt::most<LANE>(simt::most<LANE>(x, y), z), a, b, WORD{0}); }  \
  inline WORD __vimin_##TYPE##_relu(WORD a, WORD b) { return ONE(simt::most<LANE>(simt::least<LANE>(x, y), z), a, b, WORD{0}); } \
  inline WORD __viaddmax_##TYPE##_relu(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(x, 0), __viaddmax_##TYPE(a, b, c), a, a); } \
  inline WORD __viaddmin_##TYPE##_relu(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(x, 0), __viaddmin_##TYPE(a, b, c), a, a); } \
  inline WORD __vimax3_##TYPE##_relu(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(x, 0), __vimax3_##TYPE(a, b, c), a, a); }     \
  inline WORD __vimin3_##TYPE##_relu(WORD a, WORD b, WORD c) { return ONE(simt::most<LANE>(x, 0), __vimin3_##TYPE(a, b, c), a, a); }
#define SIMT_WHOLE(EXPRESSION, A, B, C) [](auto x, auto y, auto z) { (void)y, (void)z; return EXPRESSION; }(A, B, C)
#define SIMT_SIGNED_HALVES(EXPRESSION, A, B, C) \
  simt::lanes<int16_t>([](int16_t x, int16_t y, int16_t z) { (void)y, (void)z; return EXPRESSION; }, A, B, C)
#define SIMT_UNSIGNED_HALVES(EXPRESSION, A, B, C) \
  simt::lanes<uint16_t>([](uint16_t x, uint16_t y, uint16_t z) { (void)y, (void)z; return EXPRESSION; }, A, B, C)
SIMT_STEPS_OF(s32, int, int, SIMT_WHOLE)
SIMT_STEPS_OF(u32, unsigned, unsigned, SIMT_WHOLE)
SIMT_STEPS_OF(s16x2, int16_t, unsigned, SIMT_SIGNED_HALVES)
SIMT_STEPS_OF(u16x2, uint16_t, unsigned, SIMT_UNSIGNED_HALVES)
SIMT_STEPS_ABOVE_ZERO(s32, int, int, SIMT_WHOLE)
SIMT_STEPS_ABOVE_ZERO(s16x2, int16_t, unsigned, SIMT_SIGNED_HALVES)
#undef SIMT_STEPS_OF
#undef SIMT_STEPS_ABOVE_ZERO
#undef SIMT_WHOLE
#undef SIMT_SIGNED_HALVES
#undef SIMT_UNSIGNED_HALVES

// Which of two was chosen is told too: the first, if they are equal.
#define SIMT_CHOICES(NAME, OPERATOR)                                                                                    \
  inline int NAME##_s32(int a, int b, bool* first) { return (*first = a OPERATOR b) ? a : b; }                           \
  inline unsigned NAME##_u32(unsigned a, unsigned b, bool* first) { return (*first = a OPERATOR b) ? a : b; }            \
  inline unsigned NAME##_s16x2(unsigned a, unsigned b, bool* high, bool* low) {                                          \
    *high = static_cast<int16_t>(a >> 16) OPERATOR static_cast<int16_t>(b >> 16);                                        \
    *low = static_cast<int16_t>(a) OPERATOR static_cast<int16_t>(b);                                                     \
    return ((*high ? a : b) & 0xffff0000u) | ((*low ? a : b) & 0xffffu);                                                 \
  }                                                                                                                      \
  inline unsigned NAME##_u16x2(unsigned a, unsigned b, bool* high, bool* low) {                                          \
    *high = (a >> 16) OPERATOR (b >> 16);                                                                                \
    *low = (a & 0xffffu) OPERATOR (b & 0xffffu);                                                                         \
    return ((*high ? a : b) & 0xffff0000u) | ((*low ? a : b) & 0xffffu);                                                 \
  }
SIMT_CHOICES(__vibmax, >=)
SIMT_CHOICES(__vibmin, <=)
#undef SIMT_CHOICES
