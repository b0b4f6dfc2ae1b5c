// Where the threads of a block meet, and fences.
#pragma once
#include "keywords.h"

SIMT_INLINE void __syncthreads(simt::Place at = simt::here()) { simt::barrier(simt::Vote::none, 0, at); }
SIMT_INLINE int __syncthreads_count(int said, simt::Place at = simt::here()) {
  return simt::barrier(simt::Vote::count, said != 0, at);
}
SIMT_INLINE int __syncthreads_and(int said, simt::Place at = simt::here()) {
  return simt::barrier(simt::Vote::all, said != 0, at);
}
SIMT_INLINE int __syncthreads_or(int said, simt::Place at = simt::here()) {
  return simt::barrier(simt::Vote::any, said != 0, at);
}

SIMT_INLINE void __threadfence() { simt::fence(simt::acquires | simt::releases); }
SIMT_INLINE void __threadfence_block() { simt::fence(simt::of_block | simt::acquires | simt::releases); }
SIMT_INLINE void __threadfence_system() { __threadfence(); }
SIMT_INLINE void __nanosleep(unsigned) { simt::step_aside(); }

SIMT_UNSEEN inline long long clock64() { return static_cast<long long>(__builtin_ia32_rdtsc()); }
// The host's function, too, which counts what CLOCKS_PER_SEC says.
SIMT_UNSEEN inline long clock() { return simt::in_kernel() ? static_cast<long>(clock64()) : simt::host_clock(); }

// Every address of the emulator is a generic one.
inline unsigned __isGlobal(const void* p) { return simt::space_of(p) == 'g'; }
inline unsigned __isShared(const void* p) { return simt::space_of(p) == 's'; }
inline unsigned __isLocal(const void* p) { return simt::space_of(p) == 'l'; }
inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
