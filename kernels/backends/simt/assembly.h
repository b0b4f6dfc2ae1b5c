// Inline PTX: assembly.py makes calls of asm statements, which the runtime interprets.
#pragma once
#include "keywords.h"

namespace simt {
// One operand: what it holds before, and a place for what it holds behind.
template <class T>
struct AsmInput {
  T held;
  SIMT_INLINE uint64_t before() const {
    static_assert(sizeof(T) <= 8, "operands of inline PTX have up to 8 bytes");
    if constexpr (std::is_integral_v<T> && sizeof(T) < 4) return static_cast<uint32_t>(+held);
    uint64_t raw = 0;
    copy_unseen<T>(&raw, &held);
    return raw;
  }
  SIMT_INLINE void after(uint64_t) const {}
};
template <class T>
struct AsmOutput {
  T& place;
  bool is_read;
  SIMT_INLINE uint64_t before() const { return is_read ? AsmInput<std::remove_volatile_t<T>>{place}.before() : 0; }
  SIMT_INLINE void after(uint64_t raw) const {
    std::remove_volatile_t<T> found;
    copy_unseen<decltype(found)>(&found, &raw);
    place = found;
  }
};
template <class T>
SIMT_INLINE AsmInput<T> asm_input(const char*, T value) { return {value}; }
template <class T>
SIMT_INLINE AsmOutput<T> asm_output(const char* constraint, T& place) { return {place, constraint[0] == '+'}; }

template <class... O>
SIMT_INLINE void assembly(Place at, const char* text, const O&... operands) {
  uint64_t held[sizeof...(O) + 1] = {operands.before()...};
  ptx_run(text, held, sizeof...(O), at);
  size_t n = 0;
  (operands.after(held[n++]), ...);
}
}  // namespace simt

#define SIMT_ASM(...) simt::assembly(simt::here(), __VA_ARGS__)
