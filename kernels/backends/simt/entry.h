// How a kernel is called from outside: what it takes, as text, and a launch with arguments in a common form.
#pragma once
#include "keywords.h"

namespace simt {
// One argument in each of the forms that a parameter may want; kernels/backends/simt/emulator.py has the same.
struct Argument {
  void* address;
  double real;
  long long whole;
};

template <class A>
SIMT_UNSEEN A passed(const Argument& a) {
  static_assert(std::is_pointer_v<A> || std::is_arithmetic_v<A> || std::is_enum_v<A>,
                "a parameter of the kernel is neither a pointer nor a number");
  if constexpr (std::is_pointer_v<A>) return static_cast<A>(a.address);
  else if constexpr (std::is_floating_point_v<A>) return static_cast<A>(a.real);
  else return static_cast<A>(a.whole);
}

// Three letters a parameter: pointer or value; float, bfloat, float8 (e or x, as it has 4 or 5 bits of exponent) or
// integer (i, or u for a number without sign), ? for anything else; bytes of an element.
template <class A>
char* describe(char* at) {
  using E = std::remove_cv_t<std::remove_pointer_t<A>>;
  bool brain = std::is_same_v<E, __nv_bfloat16>, e4m3 = std::is_same_v<E, __nv_fp8_e4m3>;
  bool e5m2 = std::is_same_v<E, __nv_fp8_e5m2>, real = std::is_floating_point_v<E> || std::is_same_v<E, __half>;
  bool whole = std::is_integral_v<E> || std::is_enum_v<E>;
  *at++ = std::is_pointer_v<A> ? 'p' : 'v';
  bool no_sign = !std::is_pointer_v<A> && std::is_unsigned_v<E>;
  *at++ = brain ? 'b' : e4m3 ? 'e' : e5m2 ? 'x' : real ? 'f' : whole ? (no_sign ? 'u' : 'i') : '?';
  if constexpr (std::is_void_v<E>) *at++ = '0';
  else *at++ = sizeof(E) < 10 ? static_cast<char>('0' + sizeof(E)) : '0';
  return at;
}

// Somewhere in the library's block of shared memory, by which the runtime finds the block.
static thread_local char anchor;

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
  static SIMT_UNSEEN int run(Launch* how, const Argument* arguments) {
    anchor = 1;
    return launch(how, thread, arguments, &anchor);
  }
  static SIMT_UNSEEN void thread(const void* arguments) {
    call(static_cast<const Argument*>(arguments), std::index_sequence_for<A...>{});
  }
  template <size_t... I>
  static SIMT_UNSEEN void call(const Argument* arguments, std::index_sequence<I...>) {
    Kernel(passed<A>(arguments[I])...);
  }
};
}  // namespace simt

#define SIMT_ENTRY(number, ...)                                                                             \
  extern "C" SIMT_API const char* simt_takes_##number() { return simt::Runner<&__VA_ARGS__>::takes(); }      \
  extern "C" SIMT_API int simt_launch_##number(simt::Launch* how, const simt::Argument* arguments) {        \
    return simt::Runner<&__VA_ARGS__>::run(how, arguments);                                                 \
  }
