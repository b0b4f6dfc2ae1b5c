// Accesses to memory, atomic operations, fences, and copies in the background: all of them are judged as those of CUDA C++.
#include "ptx.h"

#include <stdio.h>

namespace simt {
char space_of(const void* pointer) {
  auto at = reinterpret_cast<uintptr_t>(pointer), fixed = reinterpret_cast<uintptr_t>(S.shared);
  bool is_shared = at - fixed < S.shared_bytes || at - reinterpret_cast<uintptr_t>(dynamic_shared) < S.launch->dynamic_shared;
  return is_shared ? 's' : is_stack(at) ? 'l' : 'g';
}
}  // namespace simt

namespace simt::ptx {
namespace {
// Bits of an instruction's detail beside those of How.
constexpr int in_shared = 256;

struct Area {
  uintptr_t begin, end;
};
uintptr_t distance(uintptr_t at, const Area& a) { return at < a.begin ? a.begin - at : at >= a.end ? at - a.end + 1 : 0; }

int scope_of(const Instruction& i) { return i.has("cta") ? of_block : 0; }
int order_of(const Instruction& i) {
  bool both = i.has("acq_rel") || i.has("sc");
  return (both || i.has("acquire") ? acquires : 0) | (both || i.has("release") ? releases : 0);
}
uintptr_t where(const Machine& m, const Instruction& i, const Operand& o) {
  uint64_t at = m.address(o);
  return i.detail & in_shared ? shared_pointer(at) : at;
}
__attribute__((noinline)) void check_alignment(const Machine& m, uintptr_t at, size_t bytes) {
  if (at >= 4096 && at % bytes == 0) return;
  char text[64] = "null";
  if (at >= 4096) snprintf(text, sizeof text, "%#zx", static_cast<size_t>(at));
  fail(at < 4096 ? Trouble::memory_fault : Trouble::misaligned, m.at, text);
}

// ---- ld and st ---------------------------------------------------------------------------------------------------------

const std::vector<Operand>& each(const Operand& o, std::vector<Operand>& one) {
  if (o.kind == Operand::is_group) return o.parts;
  one.push_back(o);
  return one;
}
void load(Machine& m, const Instruction& i) {
  std::vector<Operand> one;
  const auto& to = each(i.operands[0], one);
  size_t bytes = bytes_of(i.type);
  uintptr_t at = where(m, i, i.operands[1]);
  if (i.detail & (by_volatility | synchronizes)) poll();
  touch(m, at, bytes * to.size(), i.detail);
  int unused = 64 - 8 * static_cast<int>(bytes);
  for (size_t n = 0; n < to.size(); ++n) {
    uint64_t raw = 0;
    memcpy(&raw, reinterpret_cast<const char*>(at) + n * bytes, bytes);
    m.put(to[n], is_signed(i.type) ? static_cast<uint64_t>(static_cast<int64_t>(raw << unused) >> unused) : raw, Type::b64);
  }
  acting_for = nullptr;
}
void store(Machine& m, const Instruction& i) {
  std::vector<Operand> one;
  const auto& from = each(i.operands[1], one);
  size_t bytes = bytes_of(i.type);
  uintptr_t at = where(m, i, i.operands[0]);
  touch(m, at, bytes * from.size(), i.detail);
  for (size_t n = 0; n < from.size(); ++n) {
    uint64_t raw = m.get(from[n]);
    memcpy(reinterpret_cast<char*>(at) + n * bytes, &raw, bytes);
  }
  acting_for = nullptr;
}

// ---- atom and red ------------------------------------------------------------------------------------------------------

template <class T>
uint64_t exchange(const Machine& m, const Instruction& i, uintptr_t at, uint64_t b, uint64_t c) {
  T wanted = static_cast<T>(b);
  const char* name = i.has("cas") ? "cas" : i.has("exch") ? "exch" : i.has("inc") ? "inc" : i.has("dec") ? "dec" : "";
  auto make = [&](T old) -> T {
    switch (name[0]) {
      case 'c': return old == wanted ? static_cast<T>(c) : old;
      case 'e': return wanted;
      case 'i': return old >= wanted ? T(0) : static_cast<T>(old + 1);
      case 'd': return old == T(0) || old > wanted ? wanted : static_cast<T>(old - 1);
      default: return static_cast<T>(i.value({i, {old, b}}));
    }
  };
  return exchanged(reinterpret_cast<T*>(at), m.caller, make, i.detail & ~in_shared, name[0] == 'c' ? &wanted : nullptr);
}
void change(Machine& m, const Instruction& i) {
  bool tells = i.name == "atom";
  const Operand* o = &i.operands[tells];
  uintptr_t at = where(m, i, o[0]);
  uint64_t b = m.get(o[1]), c = i.operands.size() > size_t{2} + tells ? m.get(o[2]) : 0, old = 0;
  check_alignment(m, at, bytes_of(i.type));
  acting_for = m.caller;
  switch (bytes_of(i.type)) {
    case 2: old = exchange<uint16_t>(m, i, at, b, c); break;
    case 4: old = exchange<uint32_t>(m, i, at, b, c); break;
    default: old = exchange<uint64_t>(m, i, at, b, c);
  }
  acting_for = nullptr;
  if (tells) m.put(i.operands[0], old, i.type);
}
Handler atomic_handler(Instruction& i) {
  size_t first = i.name == "atom", wanted = i.has("cas") ? 3 : 2;
  int bytes = bytes_of(i.type);
  if (i.operands.size() < first + wanted || i.operands[first + 1].kind == Operand::is_group || bytes < 2) return nullptr;
  i.detail |= reads | writes | scope_of(i) | order_of(i);
  bool whole = i.has("cas") || i.has("exch"), counts = (i.has("inc") || i.has("dec")) && i.type == Type::u32;
  for (const char* name : {"add", "min", "max", "and", "or", "xor"})
    if (i.has(name)) i.value = arithmetic(name, i.type);
  return whole || counts || i.value ? change : nullptr;
}

// ---- copies in the background ------------------------------------------------------------------------------------------

void copy(Machine& m, const Instruction& i) {
  const auto& o = i.operands;
  bool has_policy = i.has("L2::cache_hint");
  uint64_t bytes = m.get(o[2]), kept = o.size() > size_t{3} + has_policy ? m.get(o[3]) & 0xffffffffu : bytes;
  uintptr_t to = shared_pointer(m.address(o[0])), from = m.address(o[1]);
  check_alignment(m, to, bytes);
  kept = std::min(kept, bytes);
  unsigned char held[16] = {};
  if (kept) {
    check_alignment(m, from, bytes);
    acting_for = m.caller;
    accessed(reinterpret_cast<const void*>(from), kept, reads, m.caller);
    memcpy(held, reinterpret_cast<const void*>(from), kept);
  }
  copies(reinterpret_cast<void*>(to), static_cast<int>(bytes), m.caller);
  memcpy(reinterpret_cast<void*>(to), held, bytes);
  acting_for = nullptr;
}
void commit(Machine&, const Instruction&) { commit_copies(); }
void wait_group(Machine& m, const Instruction& i) { wait_for_copies(m.get(i.operands[0])); }
void wait_all(Machine&, const Instruction&) { commit_copies(), wait_for_copies(0); }
Handler copy_handler(Instruction& i) {
  if (!i.has("async") || i.has("bulk") || i.has("mbarrier")) return nullptr;
  if (i.has("commit_group")) return commit;
  if (i.has("wait_all")) return wait_all;
  if (i.has("wait_group")) return i.operands.size() == 1 ? wait_group : nullptr;
  return i.operands.size() >= 3 ? copy : nullptr;
}

// ---- the rest ----------------------------------------------------------------------------------------------------------

void run_fence(Machine&, const Instruction& i) { fence(i.detail); }
void convert_address(Machine& m, const Instruction& i) {
  uint64_t at = m.get(i.operands[1]);
  bool of_generic = i.has("to");
  m.put(i.operands[0], i.has("shared") && !of_generic ? shared_pointer(at) : at, i.type);
}
void ask_space(Machine& m, const Instruction& i) {
  uintptr_t at = m.get(i.operands[1]);
  char asked = i.has("shared") ? 's' : i.has("local") ? 'l' : 'g';
  m.put(i.operands[0], space_of(reinterpret_cast<void*>(at)) == asked, Type::pred);
}
void sleep(Machine&, const Instruction&) { step_aside(); }
void trap(Machine& m, const Instruction&) { fail(Trouble::trap, m.at, "trap"); }
void nothing(Machine&, const Instruction&) {}

Handler access_handler(Instruction& i) {
  bool is_store = i.name == "st";
  if (i.operands.size() < 2 || !bytes_of(i.type) || i.type == Type::pred || i.has("param") || i.has("async")) return nullptr;
  if (i.operands[!is_store].kind != Operand::is_address) return nullptr;
  bool strong = i.has("relaxed") || i.has("acquire") || i.has("release");
  i.detail |= (is_store ? writes : reads) | (strong ? synchronizes | scope_of(i) | order_of(i) : 0);
  if (i.has("volatile") || i.has("cv") || i.has("mmio")) i.detail |= by_volatility;
  return is_store ? store : load;
}
}  // namespace

// Many kernels keep the address of shared memory in 32 bits: of the block's two parts that which lies next.
uintptr_t shared_pointer(uint64_t address) {
  if (address >> 32) return address;
  auto fixed = reinterpret_cast<uintptr_t>(S.shared), dynamic = reinterpret_cast<uintptr_t>(dynamic_shared);
  const Area areas[] = {{fixed, fixed + S.shared_bytes}, {dynamic, dynamic + S.launch->dynamic_shared}};
  uintptr_t best = 0, nearest = ~uintptr_t{0};
  for (const Area& a : areas)
    for (int step = -1; step <= 1; ++step) {
      if (a.begin == a.end) continue;
      uintptr_t at = ((a.begin >> 32) + step) << 32 | address;
      if (distance(at, a) < nearest) nearest = distance(at, a), best = at;
    }
  return best;
}

void touch(const Machine& m, uintptr_t at, size_t bytes, int how) {
  check_alignment(m, at, bytes);
  acting_for = m.caller;
  auto* there = reinterpret_cast<void*>(at);
  if (how & synchronizes) atomic(there, static_cast<int>(bytes), m.caller, how & ~(in_shared | synchronizes | by_volatility), nullptr);
  else accessed(there, bytes, how, m.caller);
}

Handler memory_handler(Instruction& i) {
  if (i.has("shared") || i.has("shared::cta") || i.has("shared::cluster")) i.detail |= in_shared;
  if (i.has("const") || i.has("tex")) return nullptr;
  if (i.name == "ld" || i.name == "ldu" || i.name == "st") return access_handler(i);
  if (i.name == "atom" || i.name == "red") return i.has("async") ? nullptr : atomic_handler(i);
  if (i.name == "cp") return copy_handler(i);
  if (i.name == "cvta") return i.operands.size() == 2 ? convert_address : nullptr;
  if (i.name == "isspacep") return i.operands.size() == 2 ? ask_space : nullptr;
  if (i.name == "nanosleep") return sleep;
  if (i.name == "trap") return trap;
  for (const char* name : {"prefetch", "prefetchu", "discard", "applypriority", "brkpt", "pmevent", "setmaxnreg", "griddepcontrol"})
    if (i.name == name) return nothing;
  if (i.name != "fence" && i.name != "membar") return nullptr;
  if (i.has("proxy") || i.has("mbarrier_init")) return nothing;
  i.detail = scope_of(i) | order_of(i);
  if (!(i.detail & (acquires | releases))) i.detail |= acquires | releases;
  return run_fence;
}
}  // namespace simt::ptx
