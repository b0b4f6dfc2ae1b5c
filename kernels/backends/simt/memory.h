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
