// Atomic operations of the host's code (std::atomic, shared_ptr), which check mode's compiler turns into calls.
#include "watch.h"

#define WEAK extern "C" SIMT_API __attribute__((weak))
#define OPERATION(BITS, T, NAME) \
  WEAK T __tsan_atomic##BITS##_fetch_##NAME(volatile T* at, T v, int) { return __atomic_fetch_##NAME(at, v, __ATOMIC_SEQ_CST); }
#define OPERATIONS(BITS, T)                                                                                             \
  WEAK T __tsan_atomic##BITS##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }        \
  WEAK void __tsan_atomic##BITS##_store(volatile T* at, T v, int) { __atomic_store_n(at, v, __ATOMIC_SEQ_CST); }        \
  WEAK T __tsan_atomic##BITS##_exchange(volatile T* at, T v, int) { return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST); } \
  WEAK int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* at, T* old, T v, int, int) {                       \
    return __atomic_compare_exchange_n(at, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                                                     \
  WEAK int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* at, T* old, T v, int, int) {                         \
    return __atomic_compare_exchange_n(at, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                                                     \
  WEAK T __tsan_atomic##BITS##_compare_exchange_val(volatile T* at, T old, T v, int, int) {                             \
    __atomic_compare_exchange_n(at, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                \
    return old;                                                                                                         \
  }                                                                                                                     \
  OPERATION(BITS, T, add) OPERATION(BITS, T, sub) OPERATION(BITS, T, and) OPERATION(BITS, T, or)                        \
  OPERATION(BITS, T, xor) OPERATION(BITS, T, nand)
OPERATIONS(8, unsigned char)
OPERATIONS(16, unsigned short)
OPERATIONS(32, unsigned)
OPERATIONS(64, unsigned long)
WEAK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
WEAK void __tsan_atomic_signal_fence(int) {}
