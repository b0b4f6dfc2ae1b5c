// Atomic functions. Nobody else runs between two instructions of a thread, so each is what it says; the checker is told. Where
// several processors run blocks, they are the processor's.
// They are relaxed, with the scope of the device; cuda::atomic has the other orders.
#pragma once
#include "keywords.h"

namespace simt {
// Takes no part in deduction, so that atomicAdd(&real, 1) adds a float.
template <class T>
struct Same {
  using type = T;
};
template <class T>
using Given = typename Same<T>::type;

constexpr int relaxed = reads | writes, relaxed_block = relaxed | of_block;

#ifdef SIMT_PARALLEL
template <size_t Bytes>
using Word = std::conditional_t<Bytes == 16, unsigned __int128, std::conditional_t<Bytes == 8, uint64_t,
             std::conditional_t<Bytes == 4, uint32_t, std::conditional_t<Bytes == 2, uint16_t, uint8_t>>>>;
// Writes `made` if it still is as it was; what it was.
template <class T>
inline T put_if_same(void* at, const T& was, const T& made) {
  static_assert(sizeof(T) == sizeof(Word<sizeof(T)>), "an atomic operation of 1, 2, 4, 8 or 16 bytes");
  Word<sizeof(T)> old, next;
  __builtin_memcpy(&old, &was, sizeof old), __builtin_memcpy(&next, &made, sizeof next);
  old = __sync_val_compare_and_swap(static_cast<Word<sizeof(T)>*>(at), old, next);
  T seen;
  __builtin_memcpy(&seen, &old, sizeof old);
  return seen;
}
#endif

// caller: where in the kernel's code. how: scope and memory order. wanted: of a compare-and-swap.
template <class T, class F>
SIMT_UNSEEN inline T exchanged(T* at, const void* caller, F make, int how = relaxed, const void* wanted = nullptr) {
  void* bytes = const_cast<std::remove_cv_t<T>*>(at);
  simt::atomic(bytes, sizeof(T), caller, how, wanted);
  // No constructors and assignments of classes: those are functions of NVIDIA's headers, and seen.
  T old;
  __builtin_memcpy(&old, bytes, sizeof old);
  T made = make(old);
#ifdef SIMT_PARALLEL
  for (T seen = put_if_same(bytes, old, made); __builtin_memcmp(&seen, &old, sizeof old); seen = put_if_same(bytes, old, made))
    old = seen, made = make(old);
#else
  __builtin_memcpy(bytes, &made, sizeof made);
#endif
  // Nothing changed: perhaps a loop that waits for another thread, which must have its turn.
  if (!__builtin_memcmp(&old, &made, sizeof old)) simt::step_aside();
  return old;
}
}  // namespace simt

#define SIMT_CALLER __builtin_return_address(0)
#define SIMT_ATOMIC_AS(NAME, HOW, EXPRESSION)                                                                \
  template <class T>                                                                                         \
  SIMT_UNSEEN inline T NAME(T* at, simt::Given<T> v) {                                                       \
    return simt::exchanged(at, SIMT_CALLER, [=](T old) SIMT_UNSEEN -> T { return EXPRESSION; }, HOW);        \
  }
#define SIMT_ATOMIC(NAME, EXPRESSION)              \
  SIMT_ATOMIC_AS(NAME, simt::relaxed, EXPRESSION)  \
  SIMT_ATOMIC_AS(NAME##_block, simt::relaxed_block, EXPRESSION) SIMT_ATOMIC_AS(NAME##_system, simt::relaxed, EXPRESSION)
SIMT_ATOMIC(atomicAdd, static_cast<T>(old + v))
SIMT_ATOMIC(atomicSub, static_cast<T>(old - v))
SIMT_ATOMIC(atomicMin, v < old ? v : old)
SIMT_ATOMIC(atomicMax, v > old ? v : old)
SIMT_ATOMIC(atomicAnd, static_cast<T>(old & v))
SIMT_ATOMIC(atomicOr, static_cast<T>(old | v))
SIMT_ATOMIC(atomicXor, static_cast<T>(old ^ v))
SIMT_ATOMIC(atomicExch, ((void)old, v))
SIMT_ATOMIC(atomicInc, old >= v ? T(0) : static_cast<T>(old + 1))
SIMT_ATOMIC(atomicDec, old == T(0) || old > v ? v : static_cast<T>(old - 1))
#undef SIMT_ATOMIC
#undef SIMT_ATOMIC_AS

#define SIMT_CAS(NAME, HOW)                                                                                          \
  template <class T>                                                                                                 \
  SIMT_UNSEEN inline T NAME(T* at, simt::Given<T> wanted, simt::Given<T> v) {                                        \
    return simt::exchanged(at, SIMT_CALLER, [=](T now) SIMT_UNSEEN -> T { return now == wanted ? v : now; }, HOW, &wanted); \
  }
SIMT_CAS(atomicCAS, simt::relaxed)
SIMT_CAS(atomicCAS_block, simt::relaxed_block)
SIMT_CAS(atomicCAS_system, simt::relaxed)
#undef SIMT_CAS

SIMT_UNSEEN inline __half2 atomicAdd(__half2* at, __half2 v) {
  return simt::exchanged(at, SIMT_CALLER, [=](__half2 old) SIMT_UNSEEN -> __half2 { return __hadd2(old, v); });
}
SIMT_UNSEEN inline __nv_bfloat162 atomicAdd(__nv_bfloat162* at, __nv_bfloat162 v) {
  return simt::exchanged(at, SIMT_CALLER, [=](__nv_bfloat162 old) SIMT_UNSEEN -> __nv_bfloat162 { return __hadd2(old, v); });
}
SIMT_UNSEEN inline __half atomicAdd(__half* at, __half v) {
  return simt::exchanged(at, SIMT_CALLER, [=](__half old) SIMT_UNSEEN -> __half { return __hadd(old, v); });
}
SIMT_UNSEEN inline __nv_bfloat16 atomicAdd(__nv_bfloat16* at, __nv_bfloat16 v) {
  return simt::exchanged(at, SIMT_CALLER, [=](__nv_bfloat16 old) SIMT_UNSEEN -> __nv_bfloat16 { return __hadd(old, v); });
}
