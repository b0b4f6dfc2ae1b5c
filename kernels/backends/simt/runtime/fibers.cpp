// Threads of a block as fibers: stacks with a guard page each, one pool a process, and the switch between them.
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {
SIMT_EACH State S{};
Crew crew{{}, {}, 1};

[[noreturn]] static void no_memory(const char* purpose) {
  fprintf(stderr, "simt: no memory for %s\n", purpose);
  abort();
}

void* reserve(size_t bytes, const char* purpose, bool shared) {
  int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE;
  rlimit most{};  // a program's own: what is reserved here does not count
  if (!getrlimit(RLIMIT_DATA, &most) && most.rlim_cur < most.rlim_max && most.rlim_max == RLIM_INFINITY) {
    most.rlim_cur += bytes;
    setrlimit(RLIMIT_DATA, &most);
  }
  void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (got == MAP_FAILED) no_memory(purpose);
  return got;
}

namespace {
constexpr size_t stack_bytes = 64 << 10, page = 4096;
constexpr int most_stacks = 16 << 10;
SIMT_EACH char* pool;
SIMT_EACH int made;  // stacks that can be used; more are made as they are wanted
SIMT_EACH int16_t free_stacks[most_stacks];
SIMT_EACH int free_count;

char* top_of(int stack) {
  // Not all at the same place of a page: they would share the same lines of the cache.
  return pool + (stack + 1) * stack_bytes - 64 - (stack % 60) * 64;
}

// Of each the lowest page stays as it is reserved: a guard.
bool make_stacks() {
  int to = std::min(made + max_threads, most_stacks);
  for (int i = made; i < to; ++i)
    if (mprotect(pool + i * stack_bytes + page, stack_bytes - page, PROT_READ | PROT_WRITE)) return false;
  if (made == to) return false;
  for (int i = to; i-- > made;) free_stacks[free_count++] = static_cast<int16_t>(i);
  made = to;
  return true;
}

[[noreturn]] void give_back(int16_t stack, int to) {
  free_stacks[free_count++] = stack;  // nobody takes it before we have left it
  void* nowhere;
  if (to < 0 && !S.over) stuck();
  switch_to(S.over ? -1 : to, &nowhere);
  __builtin_unreachable();
}

bool is_fresh(int thread) { return S.warps[warp_of(thread)].fresh & bit(lane_of(thread)); }
void take_stack(int thread, int16_t stack) {
  S.threads[thread].stack = stack;
  S.warps[warp_of(thread)].fresh &= ~bit(lane_of(thread));
}

// A fiber's life: threads that were never begun, one after the other on the same stack, so that kernels whose threads
// do not meet cost no switches.
[[noreturn]] void fiber() {
  for (;;) {
    if (S.row.goes_on) run_row();
    else S.kernel(S.arguments), thread_ended();
    int16_t stack = S.threads[S.current].stack;
    int to = S.over ? -1 : next_thread();
    if (to < 0 || !is_fresh(to)) give_back(stack, to);
    take_stack(to, stack);
    set_current(to);
  }
}
}  // namespace

void end_thread() {
  settle_row();
  int16_t stack = S.threads[S.current].stack;
  thread_ended();
  give_back(stack, S.over ? -1 : next_thread());
}

#if defined(__x86_64__)
// Saves what the called function must keep, and goes on where `to` left off.
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");
extern "C" void simt_switch(void** leaving, void* to);

static void* fresh_stack(int stack) {
  void** at = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top_of(stack)) & ~uintptr_t{63});
  *--at = nullptr;  // a return address that nobody uses; it also aligns the stack as after a call
  *--at = reinterpret_cast<void*>(&fiber);
  for (int i = 0; i < 6; ++i) *--at = nullptr;
  return at;
}
#else
// Portable and some 30 times slower. A stack pointer is an ucontext_t, which lies at the stack's end.
static ucontext_t main_context;
static void simt_switch(void** leaving, void* to) {
  ucontext_t here;
  *leaving = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}
static void* fresh_stack(int stack) {
  auto* context = reinterpret_cast<ucontext_t*>((reinterpret_cast<uintptr_t>(top_of(stack)) - sizeof(ucontext_t)) & ~uintptr_t{63});
  getcontext(context);
  context->uc_stack.ss_sp = pool + stack * stack_bytes + page;
  context->uc_stack.ss_size = reinterpret_cast<char*>(context) - static_cast<char*>(context->uc_stack.ss_sp) - 64;
  context->uc_link = nullptr;
  makecontext(context, fiber, 0);
  return context;
}
#endif

void switch_to(int thread, void** leaving) {
  ++S.switches;
  if (thread < 0) {
    S.current = -1;
    simt_switch(leaving, S.main_stack_pointer);
    return;
  }
  Thread& to = S.threads[thread];
  if (is_fresh(thread)) {
    take_stack(thread, free_stacks[--free_count]);
    to.stack_pointer = fresh_stack(to.stack);
  }
  set_current(thread);
  // Mostly the next lane is the next to go on, and what it left is in no near cache.
  const char* next = static_cast<const char*>(S.threads[(thread + 1) % max_threads].stack_pointer);
  for (int at = 0; at < 256; at += 64) __builtin_prefetch(next + at);
  simt_switch(leaving, to.stack_pointer);
}

void leave() {
  int me = S.current, to = S.over ? -1 : next_thread();
  if (to == me) return;
  if (to < 0 && !S.over) stuck();
  switch_to(S.over ? -1 : to, &S.threads[me].stack_pointer);
}

void begin_stacks() {
  if (!pool) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* got = mmap(nullptr, stack_bytes * most_stacks, PROT_NONE, flags, -1, 0);
    if (got == MAP_FAILED) no_memory("the threads' stacks");
    pool = static_cast<char*>(got);
#ifdef SIMT_PARALLEL
    struct Pool {  // of a thread of the host's that ends
      char* begin;
      ~Pool() { munmap(begin, stack_bytes * most_stacks), pool = nullptr, made = 0; }
    };
    static thread_local Pool own{pool};
#endif
  }
  free_count = 0;
  for (int i = made; i-- > 0;) free_stacks[free_count++] = static_cast<int16_t>(i);
}

bool have_stacks(int threads) {
  if (free_count >= threads || make_stacks()) return free_count >= threads;
  if (!made) no_memory("the threads' stacks");
  return false;
}

void run_threads() {
  int first = S.row.goes_on ? S.row.threads[0] : next_thread();
  if (first >= 0) switch_to(first, &S.main_stack_pointer);
}

bool is_stack(uintptr_t address) { return address - reinterpret_cast<uintptr_t>(pool) < stack_bytes * most_stacks && pool; }
bool is_stack_guard(uintptr_t address) {
  return is_stack(address) && (address - reinterpret_cast<uintptr_t>(pool)) % stack_bytes < page;
}
}  // namespace simt
