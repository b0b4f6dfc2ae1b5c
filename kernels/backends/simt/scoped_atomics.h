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
constexpr int acquires(memory_order o_) { return o_ == memory_order_relaxed || o_ == memory_order_release ? 0 : simt::acquires; }
constexpr int releases(memory_order o_) { return o_ >= memory_order_release ? simt::releases : 0; }
constexpr int within(thread_scope s_) { return s_ >= thread_scope_block ? simt::of_block : 0; }

// What an object and a reference have in common.
template <class T_, thread_scope Scope, class Self>
struct operations {
  SIMT_UNSEEN T_ load(memory_order order = memory_order_seq_cst) const {
    simt::poll();
    simt::atomic(const_cast<::std::remove_cv_t<T_>*>(at()), sizeof(T_), SIMT_CALLER, simt::reads | within(Scope) | acquires(order), nullptr);
    T_ found;
    simt::copy_unseen<T_>(&found, at());
    SIMT_IN_ORDER();
    return found;
  }
  SIMT_UNSEEN void store(T_ v_, memory_order order = memory_order_seq_cst) const {
    simt::atomic(at(), sizeof(T_), SIMT_CALLER, simt::writes | within(Scope) | releases(order), nullptr);
    SIMT_IN_ORDER();
    simt::copy_unseen<T_>(at(), &v_);
    SIMT_IN_ORDER();
  }
  SIMT_UNSEEN bool compare_exchange_strong(T_& wanted, T_ v_, memory_order order, memory_order) const {
    T_ before = wanted, found = simt::exchanged(at(), SIMT_CALLER, [=](T_ now) SIMT_UNSEEN -> T_ { return now == before ? v_ : now; },
                                               how(order), &before);
    if (found == before) return true;
    wanted = found;
    return false;
  }
  bool compare_exchange_strong(T_& wanted, T_ v_, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(wanted, v_, order, order);
  }
  bool compare_exchange_weak(T_& wanted, T_ v_, memory_order order, memory_order fails) const {
    return compare_exchange_strong(wanted, v_, order, fails);
  }
  bool compare_exchange_weak(T_& wanted, T_ v_, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(wanted, v_, order, order);
  }
#define SIMT_FETCH(NAME, EXPRESSION)                                                                          \
  SIMT_UNSEEN T_ NAME(T_ v_, memory_order order = memory_order_seq_cst) const {                                  \
    return simt::exchanged(at(), SIMT_CALLER, [=](T_ old) SIMT_UNSEEN -> T_ { return EXPRESSION; }, how(order)); \
  }
  SIMT_FETCH(exchange, ((void)old, v_))
  SIMT_FETCH(fetch_add, static_cast<T_>(old + v_))
  SIMT_FETCH(fetch_sub, static_cast<T_>(old - v_))
  SIMT_FETCH(fetch_and, static_cast<T_>(old & v_))
  SIMT_FETCH(fetch_or, static_cast<T_>(old | v_))
  SIMT_FETCH(fetch_xor, static_cast<T_>(old ^ v_))
  SIMT_FETCH(fetch_min, v_ < old ? v_ : old)
  SIMT_FETCH(fetch_max, v_ > old ? v_ : old)
#undef SIMT_FETCH
  T_ operator++() const { return fetch_add(1) + 1; }
  T_ operator++(int) const { return fetch_add(1); }
  T_ operator--() const { return fetch_sub(1) - 1; }
  T_ operator--(int) const { return fetch_sub(1); }
  T_ operator+=(T_ v_) const { return fetch_add(v_) + v_; }
  T_ operator-=(T_ v_) const { return fetch_sub(v_) - v_; }
  operator T_() const { return load(); }
  void wait(T_ old, memory_order order = memory_order_seq_cst) const {
    while (load(order) == old) simt::step_aside();
  }
  void notify_one() const {}
  void notify_all() const {}
  static constexpr bool is_lock_free() { return true; }

 private:
  static constexpr int how(memory_order o_) { return simt::relaxed | within(Scope) | acquires(o_) | releases(o_); }
  T_* at() const { return static_cast<const Self*>(this)->address(); }
};
}  // namespace detail

template <class T_, thread_scope Scope = thread_scope_system>
struct atomic : detail::operations<T_, Scope, atomic<T_, Scope>> {
  atomic() = default;
  constexpr atomic(T_ v_) : value(v_) {}
  atomic(const atomic&) = delete;
  T_ operator=(T_ v_) { return this->store(v_), v_; }
  T_* address() const { return const_cast<T_*>(&value); }

 private:
  T_ value;
};
template <class T_, thread_scope Scope = thread_scope_system>
struct atomic_ref : detail::operations<T_, Scope, atomic_ref<T_, Scope>> {
  explicit atomic_ref(T_& of) : of(&of) {}
  T_ operator=(T_ v_) const { return this->store(v_), v_; }
  T_* address() const { return of; }

 private:
  T_* of;
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
template <class T_>
using atomic = ::cuda::atomic<T_, thread_scope_system>;
template <class T_>
using atomic_ref = ::cuda::atomic_ref<T_, thread_scope_system>;
}  // namespace std
}  // namespace cuda
