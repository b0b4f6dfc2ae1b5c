// Reads and writes with a hint for the cache, and copies that a GPU makes in the background.
#pragma once
#include "atomics.h"

#define SIMT_LOAD(NAME)  \
  template <class T>     \
  SIMT_INLINE T NAME(const T* at) { return *at; }
SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldlu)
#undef SIMT_LOAD
// Fetched anew each time, as by who waits for it.
template <class T>
SIMT_INLINE T __ldcv(const T* at) {
  if constexpr (std::is_arithmetic_v<T>) return *const_cast<const volatile T*>(at);
  else return *at;
}
#define SIMT_STORE(NAME)                                  \
  template <class T>                                      \
  SIMT_INLINE void NAME(T* at, simt::Given<T> value) { *at = value; }
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwb)
SIMT_STORE(__stwt)
#undef SIMT_STORE

namespace simt {
template <size_t N>
SIMT_UNSEEN inline void land(void* to, const void* held) {
  struct Bytes {
    char b[N];
  };
  copies(to, N, SIMT_CALLER);
  copy_unseen<Bytes>(to, held);
}
template <size_t N>
SIMT_INLINE void copy_each(char* to, const char* from, size_t bytes, size_t rank, size_t size) {
  for (size_t i = rank * N; i < bytes; i += size * N) {
    char held[N];
    memcpy(held, from + i, N);
    land<N>(to + i, held);
  }
}
// The share of one thread of a group, in the largest pieces that addresses and size allow.
SIMT_INLINE void copy_share(void* to, const void* from, size_t bytes, size_t rank, size_t size) {
  size_t odd = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  auto* t = static_cast<char*>(to);
  auto* f = static_cast<const char*>(from);
  if (odd % 16 == 0) copy_each<16>(t, f, bytes, rank, size);
  else if (odd % 8 == 0) copy_each<8>(t, f, bytes, rank, size);
  else if (odd % 4 == 0) copy_each<4>(t, f, bytes, rank, size);
  else copy_each<1>(t, f, bytes, rank, size);
}
}  // namespace simt
