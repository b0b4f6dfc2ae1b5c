// Where the lanes of a warp meet: shuffles, votes, matches and reductions.
#pragma once
#include "keywords.h"

namespace simt {
template <class T>
SIMT_UNSEEN inline uint64_t packed(T value) {
  static_assert(sizeof(T) <= 8, "only values of up to 8 bytes travel between lanes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
SIMT_UNSEEN inline T unpacked(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace simt

#define SIMT_SHUFFLE(NAME, OP, WHICH)                                                                       \
  template <class T>                                                                                        \
  SIMT_INLINE T NAME(unsigned mask, T value, WHICH which, int width = 32, simt::Place at = simt::here()) {  \
    return simt::unpacked<T>(simt::warp(simt::Op::OP, mask, simt::packed(value), (uint32_t)which, width, at)); \
  }
SIMT_SHUFFLE(__shfl_sync, shuffle_index, int)
SIMT_SHUFFLE(__shfl_up_sync, shuffle_up, unsigned)
SIMT_SHUFFLE(__shfl_down_sync, shuffle_down, unsigned)
SIMT_SHUFFLE(__shfl_xor_sync, shuffle_xor, int)
#undef SIMT_SHUFFLE

SIMT_INLINE void __syncwarp(unsigned mask = ~0u, simt::Place at = simt::here()) {
  simt::warp(simt::Op::sync, mask, 0, 0, 32, at);
}
SIMT_INLINE unsigned __ballot_sync(unsigned mask, int said, simt::Place at = simt::here()) {
  return static_cast<unsigned>(simt::warp(simt::Op::ballot, mask, said != 0, 0, 32, at));
}
SIMT_INLINE int __any_sync(unsigned mask, int said, simt::Place at = simt::here()) {
  return static_cast<int>(simt::warp(simt::Op::any, mask, said != 0, 0, 32, at));
}
SIMT_INLINE int __all_sync(unsigned mask, int said, simt::Place at = simt::here()) {
  return static_cast<int>(simt::warp(simt::Op::all, mask, said != 0, 0, 32, at));
}
SIMT_INLINE int __uni_sync(unsigned mask, int said, simt::Place at = simt::here()) {
  return static_cast<int>(simt::warp(simt::Op::uniform, mask, said != 0, 0, 32, at));
}
SIMT_INLINE unsigned __activemask(simt::Place at = simt::here()) { return simt::active_lanes(at); }

template <class T>
SIMT_INLINE unsigned __match_any_sync(unsigned mask, T value, simt::Place at = simt::here()) {
  return static_cast<unsigned>(simt::warp(simt::Op::match_any, mask, simt::packed(value), 0, 32, at));
}
template <class T>
SIMT_INLINE unsigned __match_all_sync(unsigned mask, T value, int* same, simt::Place at = simt::here()) {
  unsigned found = static_cast<unsigned>(simt::warp(simt::Op::match_all, mask, simt::packed(value), 0, 32, at));
  *same = found != 0;
  return found;
}

// Sign or zero extension into 64 bits keeps the order of int and of unsigned.
#define SIMT_REDUCE(NAME, OP, T)                                                               \
  SIMT_INLINE T NAME(unsigned mask, T value, simt::Place at = simt::here()) {                   \
    return static_cast<T>(simt::warp(simt::Op::OP, mask, static_cast<uint64_t>(static_cast<int64_t>(value)), 0, 32, at)); \
  }
SIMT_REDUCE(__reduce_add_sync, add, int)
SIMT_REDUCE(__reduce_add_sync, add, unsigned)
SIMT_REDUCE(__reduce_min_sync, minimum, int)
SIMT_REDUCE(__reduce_min_sync, minimum, unsigned)
SIMT_REDUCE(__reduce_max_sync, maximum, int)
SIMT_REDUCE(__reduce_max_sync, maximum, unsigned)
SIMT_REDUCE(__reduce_and_sync, bit_and, unsigned)
SIMT_REDUCE(__reduce_or_sync, bit_or, unsigned)
SIMT_REDUCE(__reduce_xor_sync, bit_xor, unsigned)
#undef SIMT_REDUCE

// As they were before compute capability 7.0, of the lanes that come to them together.
#define SIMT_OF_ACTIVE(NAME, WHICH)                                                                         \
  template <class T>                                                                                        \
  SIMT_INLINE T NAME(T value, WHICH which, int width = 32, simt::Place at = simt::here()) {                 \
    return NAME##_sync(simt::active_lanes(at), value, which, width, at);                                     \
  }
SIMT_OF_ACTIVE(__shfl, int)
SIMT_OF_ACTIVE(__shfl_up, unsigned)
SIMT_OF_ACTIVE(__shfl_down, unsigned)
SIMT_OF_ACTIVE(__shfl_xor, int)
#undef SIMT_OF_ACTIVE
SIMT_INLINE unsigned __ballot(int said, simt::Place at = simt::here()) {
  return __ballot_sync(simt::active_lanes(at), said, at);
}
SIMT_INLINE int __any(int said, simt::Place at = simt::here()) { return __any_sync(simt::active_lanes(at), said, at); }
SIMT_INLINE int __all(int said, simt::Place at = simt::here()) { return __all_sync(simt::active_lanes(at), said, at); }
