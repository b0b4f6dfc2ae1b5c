// Addresses that the host and a device have of the same thing are two: of variables, functions, and where the virtual functions
// of an object are. Here they are one; so it is known which of them the host has from the device, and which it has itself.
#include <stdio.h>
#include <string.h>

#include <map>
#include <set>
#include <string>

#include "watch.h"

namespace simt {
bool any_crossed;

namespace {
struct Symbol {
  size_t bytes;
  Kind kind;
  std::string name;
};
auto& symbols() {  // which are read before what lies outside of functions is made
  static auto& made = *new std::map<uintptr_t, Symbol>;  // never destroyed
  return made;
}
auto& learnt = *new std::set<uintptr_t>;   // addresses that the host has from the device
auto& crossed = *new std::set<uintptr_t>;  // where words lie that it has put there itself

// Of an object's first word, which points into its class's table.
bool has_functions_of_device(uintptr_t begin, size_t bytes) {
  for (auto* slot = reinterpret_cast<const uintptr_t*>(begin); bytes >= sizeof *slot; bytes -= sizeof *slot)
    if (auto s = symbols().find(*slot++); s != symbols().end() && s->second.kind == Kind::function) return true;
  return false;
}

// What the host's word means to a device: nothing that it should.
Memory meaning_of(uintptr_t word) {
  if (!in_library(word)) return {};
  Memory m = memory_at(word);
  if (m.kind == Kind::managed_variable || learnt.count(word - m.offset)) return {};
  if (m.kind != Kind::none) return m;
  auto s = symbols().upper_bound(word);
  if (s == symbols().begin() || word - (--s)->first >= s->second.bytes) return {};
  bool is_table = s->second.kind == Kind::virtual_table;
  if (is_table ? !has_functions_of_device(s->first, s->second.bytes) : word != s->first) return {};
  m.kind = s->second.kind;
  snprintf(m.name, sizeof m.name, "%s", s->second.name.c_str());
  return m;
}

template <class F>
void each_word(const void* at, size_t bytes, F f) {
  uintptr_t begin = (reinterpret_cast<uintptr_t>(at) + 7) & ~uintptr_t{7}, end = reinterpret_cast<uintptr_t>(at) + bytes, word;
  for (; begin + sizeof word <= end; begin += sizeof word)
    if (memcpy(&word, reinterpret_cast<void*>(begin), sizeof word); in_library(word)) f(begin, word);
}

void tell_of(const Memory& m, Fault f, const char* to) {
  f.trouble = static_cast<int32_t>(Misuse::host_address), f.region = f.other = -1;
  snprintf(f.text, sizeof f.text, "%s %s%s", m.kind == Kind::virtual_table ? "an object of" : "the address of", m.name, to);
  note(f, m, false);
}

void forget_crossed(uintptr_t at, size_t bytes) {
  crossed.erase(crossed.lower_bound(at - 7), crossed.lower_bound(at + bytes));
  any_crossed = !crossed.empty();
}
}  // namespace

void add_symbol(uintptr_t begin, size_t bytes, Kind kind, const char* name) { symbols()[begin] = {bytes, kind, name}; }

void host_learns(uintptr_t address) { learnt.insert(address - memory_at(address).offset); }
void host_learns(const void* at, size_t bytes) {
  each_word(at, bytes, [](uintptr_t place, uintptr_t word) {
    if (!crossed.count(place)) host_learns(word);
  });
}

bool is_of_host(const void* at) {
  Kind kind = meaning_of(reinterpret_cast<uintptr_t>(at)).kind;
  return kind == Kind::variable || kind == Kind::constant;
}

void judge_arguments(const void* at, size_t bytes, const char* kernel, Place where) {
  each_word(at, bytes, [&](uintptr_t, uintptr_t word) {
    Fault f{};
    f.thread = -1;
    set_place(f, where);
    if (Memory m = meaning_of(word); m.kind != Kind::none) tell_of(m, f, (std::string(" to kernel ") + kernel).c_str());
  });
}

void cross(const void* to, const void* from, size_t bytes) {
  auto is_device = [](const void* at) {
    Kind kind = memory_at(reinterpret_cast<uintptr_t>(at)).kind;
    return kind == Kind::device || kind == Kind::heap || kind == Kind::variable || kind == Kind::constant;
  };
  bool from_device = is_device(from);
  auto t = reinterpret_cast<uintptr_t>(to), f = reinterpret_cast<uintptr_t>(from);
  if (from_device && !is_device(to)) host_learns(from, bytes);
  if (!is_device(to)) return;
  forget_crossed(t, bytes);
  each_word(to, bytes, [&](uintptr_t place, uintptr_t word) {
    if (from_device ? crossed.count(place - t + f) : meaning_of(word).kind != Kind::none) crossed.insert(place), any_crossed = true;
  });
}

void place_object(uintptr_t at) { crossed.insert(at), any_crossed = true; }

void judge_crossed(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  if (how & a_write) return forget_crossed(at, bytes);
  each_word(reinterpret_cast<void*>(at), bytes, [&](uintptr_t place, uintptr_t word) {
    Memory m = crossed.count(place) ? meaning_of(word) : Memory{};
    if (m.kind == Kind::none) return;
    Fault f{};
    f.thread = S.current, f.block = static_cast<uint32_t>(S.block), f.pc = relative(reinterpret_cast<void*>(pc));
    tell_of(m, f, "");
  });
}
}  // namespace simt
