// A variable, a function and the virtual functions of an object have two addresses, the host's and the device's. Here the two
// are one; so it is known which of them the host has from the device, and where it has put its own.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "watch.h"

namespace simt {
bool any_crossed;

namespace {
auto& symbols() {  // which are read before what lies outside of functions is made
  static auto& made = *new std::map<uintptr_t, Memory>;  // never destroyed
  return made;
}
auto& learnt = *new std::set<uintptr_t>;   // addresses that the host has from the device
auto& crossed = *new std::set<uintptr_t>;  // where words lie that it has put there itself

bool is_function(uintptr_t word) {
  auto s = symbols().find(word);
  return s != symbols().end() && s->second.kind == Kind::function;
}

// What the host's word means, that a device should not get; kind none: nothing. A table counts if kernels can call by it.
Memory meaning_of(uintptr_t word) {
  if (!in_library(word)) return {};
  Memory m = memory_at(word);
  if (m.kind == Kind::managed_variable || learnt.count(word - m.offset)) return {};
  if (m.kind != Kind::none || is_function(word)) return m.kind == Kind::none ? symbols()[word] : m;
  auto s = symbols().upper_bound(word);
  if (s == symbols().begin() || (--s)->second.kind != Kind::virtual_table || word - s->first >= s->second.bytes) return {};
  auto *slot = reinterpret_cast<const uintptr_t*>(s->first), *end = slot + s->second.bytes / sizeof *slot;
  return std::any_of(slot, end, is_function) ? s->second : Memory{};
}

template <class F>
void each_word(const void* at, size_t bytes, F f) {
  uintptr_t begin = (reinterpret_cast<uintptr_t>(at) + 7) & ~uintptr_t{7}, end = reinterpret_cast<uintptr_t>(at) + bytes, word;
  for (; begin + sizeof word <= end; begin += sizeof word)
    if (memcpy(&word, reinterpret_cast<void*>(begin), sizeof word); in_library(word)) f(begin, word);
}

void tell_of(const Memory& m, Fault f, const std::string& to) {
  if (m.kind == Kind::none) return;
  f.trouble = static_cast<int32_t>(Misuse::host_address), f.region = f.other = -1;
  snprintf(f.text, sizeof f.text, "%s %s%s", m.kind == Kind::virtual_table ? "an object of" : "the address of", m.name, to.c_str());
  note(f, m, false);
}

bool is_devices(const void* at) {
  Kind kind = memory_at(reinterpret_cast<uintptr_t>(at)).kind;
  return kind == Kind::device || kind == Kind::heap || kind == Kind::variable || kind == Kind::constant;
}

void forget_crossed(uintptr_t at, size_t bytes) {
  crossed.erase(crossed.lower_bound(at - 7), crossed.lower_bound(at + bytes));
  any_crossed = !crossed.empty();
}
}  // namespace

void add_symbol(uintptr_t begin, size_t bytes, Kind kind, const char* name) {
  Memory& m = symbols()[begin];
  m.kind = kind, m.bytes = bytes;
  snprintf(m.name, sizeof m.name, "%s", name);
}

void host_learns(const void* at, size_t bytes) {
  each_word(at, bytes, [](uintptr_t place, uintptr_t word) {
    if (!crossed.count(place)) learnt.insert(word - memory_at(word).offset);
  });
}

bool is_of_host(const void* at) {
  Kind kind = meaning_of(reinterpret_cast<uintptr_t>(at)).kind;
  return kind == Kind::variable || kind == Kind::constant;
}

void judge_arguments(const void* at, size_t bytes, const char* kernel, Place where) {
  Fault f{};
  f.thread = -1;
  set_place(f, where);
  each_word(at, bytes, [&](uintptr_t, uintptr_t word) { tell_of(meaning_of(word), f, std::string(" to kernel ") + kernel); });
}

void cross(const void* to, const void* from, size_t bytes) {
  bool from_device = is_devices(from);
  uintptr_t begin = reinterpret_cast<uintptr_t>(to), apart = begin - reinterpret_cast<uintptr_t>(from);
  if (!is_devices(to)) return from_device ? host_learns(from, bytes) : void();
  forget_crossed(begin, bytes);
  each_word(to, bytes, [&](uintptr_t at, uintptr_t word) {
    if (from_device ? crossed.count(at - apart) : meaning_of(word).kind != Kind::none) place_object(at);
  });
}

void place_object(uintptr_t at) { crossed.insert(at), any_crossed = true; }

void judge_crossed(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  if (how & a_write) return forget_crossed(at, bytes);
  Fault f{};
  f.thread = S.current, f.block = static_cast<uint32_t>(S.block), f.pc = relative(reinterpret_cast<void*>(pc));
  each_word(reinterpret_cast<void*>(at), bytes, [&](uintptr_t place, uintptr_t word) {
    if (crossed.count(place)) tell_of(meaning_of(word), f, "");
  });
}
}  // namespace simt
