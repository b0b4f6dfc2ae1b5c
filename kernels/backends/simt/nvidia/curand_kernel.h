// cuRAND's device API: XORWOW and Philox4_32_10, the numbers of the library.
#pragma once
#include "../runtime/random.h"

// Numbers from 32 or 64 bits, in (0, 1].
SIMT_INLINE float simt_uniform(unsigned x) { return x * 2.3283064e-10f + 2.3283064e-10f / 2.0f; }
SIMT_INLINE double simt_uniform_double(unsigned x, unsigned y) {
  unsigned long long z = x ^ static_cast<unsigned long long>(y) << 21;
  return static_cast<double>(z) * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2.0;
}
inline float2 simt_box_muller(unsigned x, unsigned y) {
  float u = simt_uniform(x), scale = 2.3283064e-10f * 6.2831855f, v = y * scale + scale / 2.0f, s = sqrtf(-2.0f * logf(u));
  return make_float2(sinf(v) * s, cosf(v) * s);
}
inline double2 simt_box_muller(unsigned x0, unsigned x1, unsigned y0, unsigned y1) {
  double u = simt_uniform_double(x0, x1), v = 2.0 * simt_uniform_double(y0, y1), s = ::sqrt(-2.0 * ::log(u));
  return make_double2(sinpi(v) * s, cospi(v) * s);
}

struct curandStateXORWOW {
  unsigned d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

inline void skipahead(unsigned long long n, curandStateXORWOW* s) {
  simt::xorwow_skip(s->v, n, false);
  s->d += 362437u * static_cast<unsigned>(n);
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* s) { simt::xorwow_skip(s->v, n, true); }
inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, curandStateXORWOW* s) {
  unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u);
  unsigned high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
  curandStateXORWOW made{6615241u + high + low,
                         {123456789u + low, 362436069u ^ low, 521288629u + high, 88675123u ^ high, 5783321u + low}};
  skipahead_sequence(sequence, &made);
  skipahead(offset, &made);
  *s = made;
}
inline unsigned curand(curandStateXORWOW* s) {
  unsigned t = s->v[0] ^ s->v[0] >> 2;
  for (int i = 0; i < 4; ++i) s->v[i] = s->v[i + 1];
  s->v[4] = (s->v[4] ^ s->v[4] << 4) ^ (t ^ t << 1);
  s->d += 362437u;
  return s->v[4] + s->d;
}

inline uint4 curand_Philox4x32_10(uint4 c, uint2 k) {
  for (int round = 0; round < 10; ++round) {
    unsigned long long a = 0xd2511f53ull * c.x, b = 0xcd9e8d57ull * c.z;
    c = make_uint4(static_cast<unsigned>(b >> 32) ^ c.y ^ k.x, static_cast<unsigned>(b),
                   static_cast<unsigned>(a >> 32) ^ c.w ^ k.y, static_cast<unsigned>(a));
    k.x += 0x9e3779b9u, k.y += 0xbb67ae85u;
  }
  return c;
}
inline void simt_count(curandStatePhilox4_32_10* s, unsigned long long n, unsigned long long high) {
  unsigned long long low = s->ctr.x | static_cast<unsigned long long>(s->ctr.y) << 32;
  high += (s->ctr.z | static_cast<unsigned long long>(s->ctr.w) << 32) + (low + n < low);
  low += n;
  s->ctr = make_uint4(static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high),
                      static_cast<unsigned>(high >> 32));
  s->output = curand_Philox4x32_10(s->ctr, s->key);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* s) { simt_count(s, 0, n); }
inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* s) {
  s->STATE += n & 3;
  simt_count(s, n / 4 + (s->STATE > 3), 0);
  s->STATE &= 3;
}
inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset,
                        curandStatePhilox4_32_10* s) {
  curandStatePhilox4_32_10 made{};
  made.key = make_uint2(static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  skipahead_sequence(sequence, &made);
  skipahead(offset, &made);
  *s = made;
}
inline unsigned curand(curandStatePhilox4_32_10* s) {
  unsigned got = s->STATE == 0 ? s->output.x : s->STATE == 1 ? s->output.y : s->STATE == 2 ? s->output.z : s->output.w;
  if (++s->STATE == 4) simt_count(s, 1, 0), s->STATE = 0;
  return got;
}
inline uint4 curand4(curandStatePhilox4_32_10* s) {
  unsigned x = curand(s), y = curand(s), z = curand(s);
  return make_uint4(x, y, z, curand(s));
}

template <class S>
SIMT_INLINE float curand_uniform(S* s) { return simt_uniform(curand(s)); }
inline double curand_uniform_double(curandStateXORWOW* s) {
  unsigned x = curand(s);
  return simt_uniform_double(x, curand(s));
}
inline double curand_uniform_double(curandStatePhilox4_32_10* s) {
  return curand(s) * 2.3283064365386963e-10 + 2.3283064365386963e-10;
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* s) {
  uint4 x = curand4(s);
  return make_float4(simt_uniform(x.x), simt_uniform(x.y), simt_uniform(x.z), simt_uniform(x.w));
}
template <class S>
inline float2 curand_normal2(S* s) {
  unsigned x = curand(s);
  return simt_box_muller(x, curand(s));
}
template <class S>
inline float curand_normal(S* s) {
  if (s->boxmuller_flag) return s->boxmuller_flag = 0, s->boxmuller_extra;
  float2 two = curand_normal2(s);
  s->boxmuller_extra = two.y, s->boxmuller_flag = 1;
  return two.x;
}
inline float4 curand_normal4(curandStatePhilox4_32_10* s) {
  uint4 x = curand4(s);
  float2 a = simt_box_muller(x.x, x.y), b = simt_box_muller(x.z, x.w);
  return make_float4(a.x, a.y, b.x, b.y);
}
template <class S>
inline double2 curand_normal2_double(S* s) {
  unsigned x = curand(s), y = curand(s), z = curand(s);
  return simt_box_muller(x, y, z, curand(s));
}
template <class S>
inline double curand_normal_double(S* s) {
  if (s->boxmuller_flag_double) return s->boxmuller_flag_double = 0, s->boxmuller_extra_double;
  double2 two = curand_normal2_double(s);
  s->boxmuller_extra_double = two.y, s->boxmuller_flag_double = 1;
  return two.x;
}
template <class S>
SIMT_INLINE float curand_log_normal(S* s, float mean, float deviation) { return expf(mean + deviation * curand_normal(s)); }
