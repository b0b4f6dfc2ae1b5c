// cuda::atomic and cuda::atomic_ref: atomic operations with a memory order and a scope, both told to the checker.
#pragma once
#include "atomics.h"

#include <atomic>

#ifdef SIMT_PARALLEL
#define SIMT_IN_ORDER() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#else
#define SIMT_IN_ORDER() ((void)0)
#endif

namespace cuda {
using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_consume;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

namespace detail {
constexpr int acquires(memory_order o) { return o == memory_order_relaxed || o == memory_order_release ? 0 : simt::acquires; }
constexpr int releases(memory_order o) { return o >= memory_order_release ? simt::releases : 0; }
constexpr int within(thread_scope s) { return s >= thread_scope_block ? simt::of_block : 0; }

// What an object and a reference have in common.
template <class T, thread_scope Scope, class Self>
struct operations {
  SIMT_UNSEEN T load(memory_order order = memory_order_seq_cst) const {
    simt::poll();
    simt::atomic(const_cast<::std::remove_cv_t<T>*>(at()), sizeof(T), SIMT_CALLER, simt::reads | within(Scope) | acquires(order), nullptr);
    T found;
    simt::copy_unseen<T>(&found, at());
    SIMT_IN_ORDER();
    return found;
  }
  SIMT_UNSEEN void store(T v, memory_order order = memory_order_seq_cst) const {
    simt::atomic(at(), sizeof(T), SIMT_CALLER, simt::writes | within(Scope) | releases(order), nullptr);
    SIMT_IN_ORDER();
    simt::copy_unseen<T>(at(), &v);
    SIMT_IN_ORDER();
  }
  SIMT_UNSEEN bool compare_exchange_strong(T& wanted, T v, memory_order order, memory_order) const {
    T before = wanted, found = simt::exchanged(at(), SIMT_CALLER, [=](T now) SIMT_UNSEEN -> T { return now == before ? v : now; },
                                               how(order), &before);
    if (found == before) return true;
    wanted = found;
    return false;
  }
  bool compare_exchange_strong(T& wanted, T v, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(wanted, v, order, order);
  }
  bool compare_exchange_weak(T& wanted, T v, memory_order order, memory_order fails) const {
    return compare_exchange_strong(wanted, v, order, fails);
  }
  bool compare_exchange_weak(T& wanted, T v, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(wanted, v, order, order);
  }
#define SIMT_FETCH(NAME, EXPRESSION)                                                                          \
  SIMT_UNSEEN T NAME(T v, memory_order order = memory_order_seq_cst) const {                                  \
    return simt::exchanged(at(), SIMT_CALLER, [=](T old) SIMT_UNSEEN -> T { return EXPRESSION; }, how(order)); \
  }
  SIMT_FETCH(exchange, ((void)old, v))
  SIMT_FETCH(fetch_add, static_cast<T>(old + v))
  SIMT_FETCH(fetch_sub, static_cast<T>(old - v))
  SIMT_FETCH(fetch_and, static_cast<T>(old & v))
  SIMT_FETCH(fetch_or, static_cast<T>(old | v))
  SIMT_FETCH(fetch_xor, static_cast<T>(old ^ v))
  SIMT_FETCH(fetch_min, v < old ? v : old)
  SIMT_FETCH(fetch_max, v > old ? v : old)
#undef SIMT_FETCH
  T operator++() const { return fetch_add(1) + 1; }
  T operator++(int) const { return fetch_add(1); }
  T operator--() const { return fetch_sub(1) - 1; }
  T operator--(int) const { return fetch_sub(1); }
  T operator+=(T v) const { return fetch_add(v) + v; }
  T operator-=(T v) const { return fetch_sub(v) - v; }
  operator T() const { return load(); }
  void wait(T old, memory_order order = memory_order_seq_cst) const {
    while (load(order) == old) simt::step_aside();
  }
  void notify_one() const {}
  void notify_all() const {}
  static constexpr bool is_lock_free() { return true; }

 private:
  static constexpr int how(memory_order o) { return simt::relaxed | within(Scope) | acquires(o) | releases(o); }
  T* at() const { return static_cast<const Self*>(this)->address(); }
};
}  // namespace detail

template <class T, thread_scope Scope = thread_scope_system>
struct atomic : detail::operations<T, Scope, atomic<T, Scope>> {
  atomic() = default;
  constexpr atomic(T v) : value(v) {}
  atomic(const atomic&) = delete;
  T operator=(T v) { return this->store(v), v; }
  T* address() const { return const_cast<T*>(&value); }

 private:
  T value;
};
template <class T, thread_scope Scope = thread_scope_system>
struct atomic_ref : detail::operations<T, Scope, atomic_ref<T, Scope>> {
  explicit atomic_ref(T& of) : of(&of) {}
  T operator=(T v) const { return this->store(v), v; }
  T* address() const { return of; }

 private:
  T* of;
};

inline void atomic_thread_fence(memory_order order, thread_scope scope = thread_scope_system) {
  if (int how = detail::acquires(order) | detail::releases(order)) simt::fence(how | detail::within(scope));
}

namespace std {
using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;
template <class T>
using atomic = ::cuda::atomic<T, thread_scope_system>;
template <class T>
using atomic_ref = ::cuda::atomic_ref<T, thread_scope_system>;
}  // namespace std
}  // namespace cuda
