// Runs a kernel on the host: every thread of every block, one after the other, each to its end.
//
// That is right for kernels whose threads do not meet. What makes threads meet is refused when the file is compiled:
// it expands to a name that does not exist, which kernels/loaders/cuda.py recognizes in the compiler's words.
#pragma once
#include <setjmp.h>

#include "device.h"

namespace serial {
static uint3 thread, block;
static dim3 threads, blocks;
static jmp_buf end_of_launch;
static char fault[256];

struct Argument {
  void* address;
  double real;
  long long whole;
};

template <class A>
A pass(const Argument& a) {
  static_assert(std::is_pointer_v<A> || std::is_arithmetic_v<A> || std::is_enum_v<A>,
                "a parameter of the kernel is neither a pointer nor a number");
  if constexpr (std::is_pointer_v<A>) return static_cast<A>(a.address);
  else if constexpr (std::is_floating_point_v<A>) return static_cast<A>(a.real);
  else return static_cast<A>(a.whole);
}

// Three letters a parameter: pointer or value; float, bfloat or integer, ? for anything else; bytes of an element.
template <class A>
char* describe(char* at) {
  using E = std::remove_cv_t<std::remove_pointer_t<A>>;
  bool brain = std::is_same_v<E, __nv_bfloat16>;
  bool real = std::is_floating_point_v<E> || std::is_same_v<E, __half>;
  bool whole = std::is_integral_v<E> || std::is_enum_v<E>;
  *at++ = std::is_pointer_v<A> ? 'p' : 'v';
  *at++ = brain ? 'b' : real ? 'f' : whole ? 'i' : '?';
  if constexpr (std::is_void_v<E>) *at++ = '0';
  else *at++ = sizeof(E) < 10 ? static_cast<char>('0' + sizeof(E)) : '0';
  return at;
}

template <auto Kernel>
struct Runner;

template <class... A, void (*Kernel)(A...)>
struct Runner<Kernel> {
  static const char* takes() {
    static char text[3 * sizeof...(A) + 1] = {};
    char* at = text;
    ((at = describe<A>(at)), ...);
    return text;
  }

  // size: blocks x, y, z, threads x, y, z and bytes of dynamic shared memory. Returns what stopped it, or nothing.
  static const char* launch(const unsigned int* size, const Argument* arguments) {
    fault[0] = 0;
    if (setjmp(end_of_launch) == 0) run(size, arguments);
    return fault;
  }

  static void run(const unsigned int* size, const Argument* arguments) {
    blocks = {size[0], size[1], size[2]};
    threads = {size[3], size[4], size[5]};
    for (block.z = 0; block.z < blocks.z; ++block.z)
      for (block.y = 0; block.y < blocks.y; ++block.y)
        for (block.x = 0; block.x < blocks.x; ++block.x) run_block(arguments, std::index_sequence_for<A...>{});
  }

  template <size_t... I>
  static void run_block(const Argument* arguments, std::index_sequence<I...>) {
    for (thread.z = 0; thread.z < threads.z; ++thread.z)
      for (thread.y = 0; thread.y < threads.y; ++thread.y)
        for (thread.x = 0; thread.x < threads.x; ++thread.x) Kernel(pass<A>(arguments[I])...);
  }
};
}  // namespace serial

static const uint3& threadIdx = serial::thread;
static const uint3& blockIdx = serial::block;
static const dim3& blockDim = serial::threads;
static const dim3& gridDim = serial::blocks;
static constexpr int warpSize = 32;

#define SERIAL_EXPORT extern "C" __attribute__((visibility("default")))
#define SERIAL_KERNEL(number, ...)                                                                      \
  SERIAL_EXPORT const char* serial_takes_##number() { return serial::Runner<&__VA_ARGS__>::takes(); }   \
  SERIAL_EXPORT const char* serial_launch_##number(const unsigned int* size, const serial::Argument* a) { \
    return serial::Runner<&__VA_ARGS__>::launch(size, a);                                               \
  }

// An address that a GPU would refuse: g++ checks every access (-fsanitize=alignment) and calls this by its given name.
extern "C" __attribute__((used)) void __ubsan_handle_type_mismatch_v1_abort(void* where, uintptr_t) {
  struct Place {
    const char* file;
    unsigned int line, column;
  };
  const Place* place = static_cast<const Place*>(where);
  const char* slash = strrchr(place->file, '/');
  const char* name = slash ? slash + 1 : place->file;
  snprintf(serial::fault, sizeof serial::fault, "misaligned address (%s, line %u)", name, place->line);
  longjmp(serial::end_of_launch, 1);
}

// ---- atomics: nobody else is running -------------------------------------------------------------------------------

namespace serial {
template <class T>
struct Same {
  using type = T;
};
template <class T>
using Given = typename Same<T>::type;  // takes no part in deduction, so that atomicAdd(&f, 1) adds a float

template <class T>
T exchange(T* p, T value) {
  T old = *p;
  *p = value;
  return old;
}
}  // namespace serial

template <class T>
T atomicAdd(T* p, serial::Given<T> v) { return serial::exchange(p, static_cast<T>(*p + v)); }
template <class T>
T atomicSub(T* p, serial::Given<T> v) { return serial::exchange(p, static_cast<T>(*p - v)); }
template <class T>
T atomicMin(T* p, serial::Given<T> v) { return serial::exchange(p, v < *p ? v : *p); }
template <class T>
T atomicMax(T* p, serial::Given<T> v) { return serial::exchange(p, v > *p ? v : *p); }
template <class T>
T atomicAnd(T* p, serial::Given<T> v) { return serial::exchange(p, static_cast<T>(*p & v)); }
template <class T>
T atomicOr(T* p, serial::Given<T> v) { return serial::exchange(p, static_cast<T>(*p | v)); }
template <class T>
T atomicXor(T* p, serial::Given<T> v) { return serial::exchange(p, static_cast<T>(*p ^ v)); }
template <class T>
T atomicExch(T* p, serial::Given<T> v) { return serial::exchange(p, v); }
template <class T>
T atomicCAS(T* p, serial::Given<T> wanted, serial::Given<T> v) { return serial::exchange(p, *p == wanted ? v : *p); }
inline unsigned int atomicInc(unsigned int* p, unsigned int top) {
  return serial::exchange(p, *p >= top ? 0u : *p + 1u);
}
inline unsigned int atomicDec(unsigned int* p, unsigned int top) {
  return serial::exchange(p, *p == 0u || *p > top ? top : *p - 1u);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- what this engine cannot do ------------------------------------------------------------------------------------

#define __shared__ NOT_SERIAL___shared__
#define __syncthreads NOT_SERIAL___syncthreads
#define __syncthreads_and NOT_SERIAL___syncthreads_and
#define __syncthreads_or NOT_SERIAL___syncthreads_or
#define __syncthreads_count NOT_SERIAL___syncthreads_count
#define __syncwarp NOT_SERIAL___syncwarp
#define __shfl_sync NOT_SERIAL___shfl_sync
#define __shfl_up_sync NOT_SERIAL___shfl_up_sync
#define __shfl_down_sync NOT_SERIAL___shfl_down_sync
#define __shfl_xor_sync NOT_SERIAL___shfl_xor_sync
#define __any_sync NOT_SERIAL___any_sync
#define __all_sync NOT_SERIAL___all_sync
#define __ballot_sync NOT_SERIAL___ballot_sync
#define __match_any_sync NOT_SERIAL___match_any_sync
#define __match_all_sync NOT_SERIAL___match_all_sync
#define __reduce_add_sync NOT_SERIAL___reduce_add_sync
#define __reduce_min_sync NOT_SERIAL___reduce_min_sync
#define __reduce_max_sync NOT_SERIAL___reduce_max_sync
#define __reduce_and_sync NOT_SERIAL___reduce_and_sync
#define __reduce_or_sync NOT_SERIAL___reduce_or_sync
#define __reduce_xor_sync NOT_SERIAL___reduce_xor_sync
#define __activemask NOT_SERIAL___activemask
#define asm NOT_SERIAL_asm
