// The checker: every access of the kernel against a shadow of its memory. Kernels to be checked are compiled with g++'s
// thread sanitizer, whose callbacks are defined here; its library is not linked.
//
// What orders two accesses is known in happens.cpp. Intervals between barriers are numbered over all blocks and all
// launches, so that what is kept of an access need not name its block, and nothing has to be cleared.
#include "happens.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace simt {
bool checking;

namespace {
uintptr_t library_begin;
int first_variable;                // of the zones
constexpr uintptr_t separation = 256;  // bytes behind a variable that belong to none; toolchain.py has the same

// A write that may be a race, or may change nothing: which of the two is known after it.
struct Pending {
  bool waits;
  Fault fault;
  unsigned char before[64];
  const void* at;
  size_t bytes;
  Cell *cell, was;
} pending;

// ---- faults ----------------------------------------------------------------------------------------------------------

struct Access {
  uintptr_t address, pc;
  size_t bytes;
  bool writes;
  uint16_t flags = 0;  // as of a stamp
  bool reads() const { return !writes || flags & read_too; }
};

Fault fault_of(Trouble trouble, const Access& a, int region) {
  Fault f{};
  f.trouble = static_cast<int32_t>(trouble);
  f.region = region;
  f.offset = region >= 0 ? static_cast<int64_t>(a.address - zones[region].begin) : static_cast<int64_t>(a.address);
  f.bytes = static_cast<int32_t>(std::min<size_t>(a.bytes, INT32_MAX));
  f.writes = a.writes;
  f.thread = S.current;
  f.other = -1;
  f.block = static_cast<uint32_t>(S.block);
  f.pc = relative(reinterpret_cast<void*>(a.pc));
  return f;
}

// A read of what nobody has written yet: somebody may write it before the next barrier, and then the two race.
bool doubted;
Fault doubt;

// Ends the launch, unless a program is watched, which goes on.
void raise(const Fault& found) {
  if (watcher) {
    doubted &= found.trouble != static_cast<int32_t>(Trouble::race);
    return watcher->found(found, false);
  }
  const Fault& f = doubted && found.trouble != static_cast<int32_t>(Trouble::race) ? doubt : found;
  if (S.launch->fault.trouble == static_cast<int32_t>(Trouble::none)) S.launch->fault = f;
  fail(static_cast<Trouble>(f.trouble), {"", 0}, "");
}

Fault race_with(const Stamp& s, const Access& a, int region) {
  Fault f = fault_of(Trouble::race, a, region);
  f.other = s.thread;
  f.other_writes = (s.flags & wrote) != 0;
  f.other_pc = s.pc;
  f.other_block = static_cast<uint32_t>(block_of(s.interval));
  if (s.flags & in_flight) strcpy(f.text, "in the background");
  return f;
}

// ---- what a compare-and-swap makes good ---------------------------------------------------------------------------------

// A plain read that races with atomic writes only: a note if the same thread goes on with a compare-and-swap of the same
// word, which sees whether it has changed, else a race.
struct Unsure {
  Fault fault;
  uintptr_t address;
  int thread;
  uint64_t block, access;
};
std::vector<Unsure> unsure;
uint64_t accesses;  // that were followed
constexpr uint16_t strong = by_atomic | by_volatile;

void note_swap(Fault f) {
  strcpy(f.text, swap_follows);
  warn(f);
}

// Whether a race is none yet. Who reads the same word once more does not go on to swap it.
bool put_off(const Fault& f, const Access& a, const Stamp& s) {
  bool reads_it = !a.writes && !(a.flags & strong) && (s.flags & (by_atomic | wrote)) == (by_atomic | wrote);
  bool read_it = (a.flags & by_atomic) && a.writes && !(s.flags & (strong | wrote));
  if (((a.flags | s.flags) & of_one_block && !is_mine(s.interval)) || !(reads_it || read_it)) return false;
  if (s.flags & swapped) return note_swap(f), true;
  if (read_it && s.interval != S.interval && !under_way(s.interval)) return false;
  int thread = reads_it ? S.current : s.thread;
  uint64_t block = reads_it ? S.block : block_of(s.interval);
  for (const Unsure& u : unsure)
    if (u.thread == thread && u.block == block && u.address == a.address) return read_it || u.access == accesses;
  constexpr size_t most = 4 * max_threads;
  if (unsure.size() >= most) return false;
  return unsure.push_back({f, a.address, thread, block, accesses}), true;
}

void swaps(uintptr_t address, size_t bytes, const void* caller) {
  auto mine = [&](const Unsure& u) { return u.thread == S.current && u.block == S.block && u.address == address; };
  for (const Unsure& u : unsure)
    if (mine(u)) note_swap(u.fault);
  unsure.erase(std::remove_if(unsure.begin(), unsure.end(), mine), unsure.end());
  const Zone* z = zone_of(address, reinterpret_cast<uintptr_t>(caller));
  if (!z || z->traits & read_only) return;
  Cell *c = z->cells + ((address - z->begin) >> z->shift), *last = z->cells + ((address + bytes - 1 - z->begin) >> z->shift);
  for (; c <= last; ++c)
    for (Stamp& s : c->others)
      if (s.interval == S.interval && s.thread == S.current && !(s.flags & (strong | wrote))) s.flags |= swapped;
}

// They have met the others at a barrier, or ended.
void settle_unsure() {
  auto mine = std::stable_partition(unsure.begin(), unsure.end(), [](const Unsure& u) { return u.block != S.block; });
  std::vector<Unsure> races(mine, unsure.end());
  unsure.erase(mine, unsure.end());
  for (const Unsure& u : races) raise(u.fault);
}

// ---- judging ---------------------------------------------------------------------------------------------------------

// Two accesses of which neither waits for the other, and that are no race for all that: atomic ones within their scopes.
// A volatile one is as good where it waits for an atomic one or hands over a flag; lanes of a warp that read what another
// wrote by a volatile access, and no fence, trust in a lockstep that is none, and of two volatile writes one is lost, but
// where flags are handed over.
bool both_strong(const Stamp& s, const Access& a) {
  if (!(s.flags & strong) || !(a.flags & strong)) return false;
  if (((s.flags | a.flags) & of_one_block) && !is_mine(s.interval)) return false;
  if (!(s.flags & a.flags & by_volatile)) return true;
  if (a.writes && (s.flags & wrote)) return s.flags & a.flags & after_fence;
  bool same_warp = is_mine(s.interval) && warp_of(s.thread) == warp_of(S.current);
  return !same_warp || ((a.writes ? a.flags : s.flags) & after_fence);
}

// Whether the last write, an atomic operation that this access is ordered behind, has read what that other one wrote,
// itself or through those between the two: observation order, which PTX counts as causality.
bool observed(const Stamp& s, const Cell& c) {
  if ((s.flags & (by_atomic | wrote)) != (by_atomic | wrote) || !(c.write.flags & read_too)) return false;
  return (is_mine(s.interval) || !((s.flags | c.write.flags) & of_one_block)) && ordered(c.write);
}

void expect_change(const Access& a, const Fault& f, Cell* cell, uintptr_t from) {
  if (pending.waits) return;
  pending.waits = true;
  pending.fault = f;
  pending.at = reinterpret_cast<const void*>(from);
  pending.bytes = std::min<size_t>(a.address + a.bytes - from, sizeof pending.before);
  pending.cell = cell, pending.was = *cell;
  memcpy(pending.before, pending.at, pending.bytes);
}

// Against one of those that a granule remembers. from: of the granule, or of the access within it.
void judge(const Access& a, Cell& c, const Stamp& kept, const Zone& z, uintptr_t from) {
  Stamp s = kept.flags & in_flight ? landed(kept) : kept;
  if (s.interval < z.since || !(a.writes || s.flags & wrote) || both_strong(s, a) || ordered(s) || observed(s, c)) return;
  Fault f = race_with(s, a, static_cast<int>(&z - zones));
  bool reads_it = (a.flags & by_atomic) && (s.flags & wrote);
  if (put_off(f, a, s)) return;
  if (a.writes && !reads_it) expect_change(a, f, &c, from);
  else raise(f);
}

void doubt_it(const Access& a, const Zone& z) {
  if (!(z.traits & (undefined | shared)) || doubted) return;
  doubted = true;
  doubt = fault_of(Trouble::uninitialized, a, static_cast<int>(&z - zones));
}

// Makes room for the last access: what it is not ordered behind stays among the others.
inline void keep(Cell& c, const Stamp& old, uint32_t begin) {
  if (old.interval == S.interval) {
    if (old.thread == S.current) return;
    const Stamp& before = c.others[1];
    bool elsewhere = before.interval == S.interval && warp_of(before.thread) != warp_of(S.current);
    if (elsewhere && (c.others[2].interval < begin || is_mine(c.others[2].interval))) c.others[2] = before;
    c.others[1] = old;
  } else if (old.interval >= begin && !is_mine(old.interval)) c.others[2] = old;
}

void note(Cell& c, const Access& a, const Stamp& now, uint32_t begin) {
  if (!a.writes) {
    keep(c, c.others[0], begin);
    c.others[0] = now;
    return;
  }
  bool many = (a.flags & by_atomic) && c.write.interval >= begin;
  if (many) keep(c, c.write, begin);
  else c.others[0].interval = c.others[1].interval = c.others[2].interval = 0;
  c.write = now;
  c.write.flags |= many ? more_writes : 0;
}

// Whether program order or a barrier of this block lies behind it, or it is of an earlier launch.
inline bool plainly_ordered(const Stamp& s, uint32_t begin) {
  uint32_t when = s.interval;
  return when < begin || (when < S.interval ? when >= S.mine_from : when == S.interval && s.thread == S.current);
}

inline bool read_plainly(Cell& c, const Zone& z, const Stamp& now) {
  uint32_t when = c.write.interval;
  if (when < z.since ? z.traits & (undefined | shared) : !plainly_ordered(c.write, z.since) || c.write.flags & more_writes) return false;
  keep(c, c.others[0], z.since);
  c.others[0] = now;
  return true;
}

inline bool write_plainly(Cell& c, const Zone& z, const Stamp& now) {
  if (!plainly_ordered(c.write, z.since)) return false;
  for (Stamp& s : c.others) {
    if (!plainly_ordered(s, z.since)) return false;
    s.interval = 0;
  }
  c.write = now;
  return true;
}

// The most frequent accesses by far: of whole granules that nobody else has touched since the last barrier of the block,
// or only read. Whether it was that, and was noted.
template <bool writes>
inline bool plain(uintptr_t address, uintptr_t pc, uintptr_t bytes) {
  const Zone& z = likely_zone(pc);
  uintptr_t offset = address - z.begin, size = z.end - z.begin, granule = uintptr_t{1} << z.shift;
  if (offset >= size || bytes > size - offset) return false;
  if (z.traits & read_only) return !writes;
  if (pending.waits || (offset | bytes) & (granule - 1)) return false;
  auto me = static_cast<uint16_t>(S.current);
  Stamp now{S.interval, clocks[me][lane_of(me)], me, writes ? wrote : uint16_t{0}, static_cast<uint32_t>(pc - library_begin)};
  Cell* c = z.cells + (offset >> z.shift);
  if (bytes == granule) return writes ? write_plainly(*c, z, now) : read_plainly(*c, z, now);
  for (Cell* end = c + (bytes >> z.shift); c < end; ++c)
    if (!(writes ? write_plainly(*c, z, now) : read_plainly(*c, z, now))) return false;
  return true;
}

bool judged(const Access& a) {
  int how = (a.writes ? a_write : 0) | (a.flags & read_too ? reads_too : 0) | (S.current < 0 || !S.active ? by_host : 0);
  how |= (a.flags & by_volatile) && !a.writes ? polls : 0;
  how |= (a.flags & strong ? strongly : 0) | (a.flags & after_fence ? publishes : 0) | (a.flags & of_class ? constructs : 0);
  return watcher->judged(a.address, a.bytes, how, a.pc);
}

void follow(const Access& a) {
  if (!S.active || S.current < 0 || is_stack(a.address)) return;
  if (pending.waits) shadow_settle();
  ++accesses;
  Zone* z = zone_of(a.address, a.pc);
  if (!z) {
    int nearest = nearest_zone(a.address);
    bool foreign = nearest < first_variable || a.address - zones[nearest].end >= separation;
    if ((in_library(a.address) && foreign) || in_runtime(a.address)) return;
    return raise(fault_of(Trouble::out_of_bounds, a, nearest));
  }
  if (a.bytes > z->end - a.address) return raise(fault_of(Trouble::out_of_bounds, a, static_cast<int>(z - zones)));
  if (a.writes && (z->traits & read_only)) return raise(fault_of(Trouble::read_only, a, static_cast<int>(z - zones)));
  if (z->traits & read_only) return;
  uintptr_t offset = a.address - z->begin;
  if (((offset | a.bytes) & ((1u << z->shift) - 1)) && z->shift) refine(*z, std::min<int>(__builtin_ctzll(offset | a.bytes), z->shift));
  bool lands = !(a.flags & in_flight);
  uint32_t begin = z->since, clock = lands ? clocks[S.current][lane_of(S.current)] : flight();
  Stamp now{lands ? S.interval : flying, clock, static_cast<uint16_t>(S.current),
            static_cast<uint16_t>(a.writes ? a.flags | wrote : a.flags), static_cast<uint32_t>(a.pc - library_begin)};
  uintptr_t from = a.address;
  for (Cell *c = z->cells + (offset >> z->shift), *end = z->cells + ((offset + a.bytes - 1) >> z->shift); c <= end; ++c) {
    bool written = (c->write.flags & in_flight ? landed(c->write) : c->write).interval >= begin;
    if (a.reads() && !written) doubt_it(a, *z);
    if (written) judge(a, *c, c->write, *z, from);
    for (const Stamp& s : c->others) judge(a, *c, s, *z, from);
    note(*c, a, now, begin);
    from = (from | ((uintptr_t{1} << z->shift) - 1)) + 1;
  }
}

void access(const Access& a) {
  if (!watcher || !judged(a)) follow(a);
}

// A volatile access, or an atomic one.
void strong_access(Access a, int how) {
  if (!checking || !S.active || S.current < 0) return access(a);
  if (a.writes && (how & releases || fenced())) a.flags |= after_fence;
  access(a);
  Zone* z = zone_of(a.address, a.pc);
  synchronize(a.address, z && z->traits & shared, how);
}

void volatile_access(const Access& a) {
  if (!(checking || watcher) || is_stack(a.address)) return;
  if (!a.writes) poll();  // before it: what others write meanwhile is read
  strong_access(a, a.writes ? writes : reads);
}
}  // namespace

// ---- called by the rest of the runtime -------------------------------------------------------------------------------

void shadow_launch() {
  const Launch& l = *S.launch;
  checking = l.check;
  if (!checking) return;
  bool worn = launch_begin > UINT32_MAX / 2;  // what is older than everything else must not come back
  forget_zones(worn);
  order_launch(worn);
  for (uint32_t i = 0; i < l.region_count; ++i) add_zone(l.regions[i].begin, l.regions[i].bytes, l.regions[i].traits);
  for (uint32_t i = 0; i < l.shared_count; ++i)
    add_zone(reinterpret_cast<uintptr_t>(S.shared) + l.shared_arrays[i].begin, l.shared_arrays[i].bytes, l.shared_arrays[i].traits);
  add_zone(reinterpret_cast<uintptr_t>(dynamic_shared), l.dynamic_shared, shared);
  first_variable = zone_count;
  for (uint32_t i = 0; i < l.variable_count; ++i)
    add_zone(library_start() + l.variables[i].begin, l.variables[i].bytes, l.variables[i].traits);
  place_cells();
  library_begin = library_start();
  pending.waits = doubted = false;
  unsure.clear();
}

void shadow_end() { checking = false; }

void shadow_block() { order_block(); }

void shadow_block_end() {
  shadow_settle();
  if (!unsure.empty()) settle_unsure();
  if (doubted) raise(doubt);
  doubted = false;
}

void shadow_barrier() {
  shadow_block_end();
  order_barrier();
}

// Whether the last doubtful write changed anything: a race, or a warning, and then it is as if it had not been.
void shadow_settle() {
  if (!pending.waits) return;
  pending.waits = false;
  if (memcmp(pending.before, pending.at, pending.bytes)) return raise(pending.fault);
  *pending.cell = pending.was;
  warn(pending.fault);
}

__attribute__((noinline)) static void misaligned(const void* at, const void* caller) {
  char text[64];
  snprintf(text, sizeof text, "%p of an atomic operation", at);
  S.launch->fault.pc = relative(caller);
  fail(Trouble::misaligned, {"", 0}, text);
}

void atomic(void* at, int bytes, const void* caller, int how, const void* wanted) {
  S.steps = 0;  // nobody else has a turn before it is done
  if (reinterpret_cast<uintptr_t>(at) % static_cast<unsigned>(bytes)) misaligned(at, caller);
  if (!checking) return;
  share_turn();
  bool fails = wanted && !zone_of(reinterpret_cast<uintptr_t>(at), reinterpret_cast<uintptr_t>(caller));
  if (wanted && !fails) fails = memcmp(at, wanted, bytes) != 0;
  if (fails) how &= ~(writes | releases);
  if (wanted) swaps(reinterpret_cast<uintptr_t>(at), bytes, caller);
  bool both = (how & reads) && (how & writes);
  auto flags = static_cast<uint16_t>(by_atomic | (how & of_block ? of_one_block : 0) | (both ? read_too : 0));
  strong_access({reinterpret_cast<uintptr_t>(at), reinterpret_cast<uintptr_t>(caller), static_cast<size_t>(bytes),
                 (how & writes) != 0, flags}, how);
}

void accessed(const void* at, size_t bytes, int how, const void* caller) {
  bool is_volatile = how & by_volatility;
  Access a{reinterpret_cast<uintptr_t>(at), reinterpret_cast<uintptr_t>(caller), bytes, (how & writes) != 0, is_volatile ? by_volatile : uint16_t{0}};
  if (is_volatile) volatile_access(a);
  else if (checking || watcher) access(a);
}

void copies(void* to, int bytes, const void* caller) {
  if (!checking) return;
  access({reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(caller), static_cast<size_t>(bytes), true, in_flight});
}
}  // namespace simt

// ---- called by g++'s instrumentation ---------------------------------------------------------------------------------

#define SIMT_HERE reinterpret_cast<uintptr_t>(__builtin_return_address(0))
#define SIMT_CALLBACK(NAME, BYTES, WRITES, QUICKLY)                                                \
  extern "C" SIMT_API void __tsan_##NAME##BYTES(void* at) {                                        \
    auto address = reinterpret_cast<uintptr_t>(at);                                                \
    if (simt::watcher && simt::judged({address, SIMT_HERE, BYTES, WRITES})) return;                \
    if (!simt::checking || QUICKLY<WRITES>(address, SIMT_HERE, BYTES)) return;                     \
    simt::follow({address, SIMT_HERE, BYTES, WRITES});                                             \
  }
#define SIMT_VOLATILE(NAME, BYTES, WRITES)                                                            \
  extern "C" SIMT_API void __tsan_##NAME##BYTES(void* at) {                                           \
    simt::volatile_access({reinterpret_cast<uintptr_t>(at), SIMT_HERE, BYTES, WRITES, simt::by_volatile}); \
  }
#define SIMT_CALLBACKS(BYTES)                            \
  SIMT_CALLBACK(read, BYTES, false, simt::plain)         \
  SIMT_CALLBACK(write, BYTES, true, simt::plain)         \
  SIMT_CALLBACK(unaligned_read, BYTES, false, simt::plain)  \
  SIMT_CALLBACK(unaligned_write, BYTES, true, simt::plain)  \
  SIMT_VOLATILE(volatile_read, BYTES, false)             \
  SIMT_VOLATILE(volatile_write, BYTES, true)             \
  SIMT_VOLATILE(unaligned_volatile_read, BYTES, false)   \
  SIMT_VOLATILE(unaligned_volatile_write, BYTES, true)
SIMT_CALLBACKS(1)
SIMT_CALLBACKS(2)
SIMT_CALLBACKS(4)
SIMT_CALLBACKS(8)
SIMT_CALLBACKS(16)

static void any_size(const void* at, size_t bytes, bool writes, uintptr_t pc, uint16_t flags = 0) {
  if ((simt::checking || simt::watcher) && bytes) simt::access({reinterpret_cast<uintptr_t>(at), pc, bytes, writes, flags});
}
extern "C" SIMT_API void __tsan_read_range(void* at, size_t bytes) { any_size(at, bytes, false, SIMT_HERE); }
extern "C" SIMT_API void __tsan_write_range(void* at, size_t bytes) { any_size(at, bytes, true, SIMT_HERE); }

// memcpy and its like, as kernels call them.
extern "C" SIMT_API void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  any_size(from, bytes, false, SIMT_HERE);
  any_size(to, bytes, true, SIMT_HERE);
  return memcpy(to, from, bytes);
}
extern "C" SIMT_API void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  any_size(from, bytes, false, SIMT_HERE);
  any_size(to, bytes, true, SIMT_HERE);
  return memmove(to, from, bytes);
}
extern "C" SIMT_API void* __wrap_memset(void* to, int byte, size_t bytes) {
  any_size(to, bytes, true, SIMT_HERE);
  return memset(to, byte, bytes);
}

namespace simt {
// A function of another rounding mode is not to be left: the mode is the processor's.
static bool rounds_otherwise() {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr() & 0x6000;
#else
  return false;
#endif
}
}  // namespace simt

// In fast mode nothing is called at a read. Where a file says `volatile`, each basic block counts.
extern "C" SIMT_API void __sanitizer_cov_trace_pc() {
  constexpr int many = 512;
  if (simt::S.active && simt::S.current >= 0 && ++simt::S.steps > many && !simt::rounds_otherwise()) {
    simt::S.steps = 0;
    simt::step_aside();
  }
}
extern "C" SIMT_API void __tsan_init() {}
extern "C" SIMT_API void __tsan_vptr_read(void**) {}
// A constructor's or destructor's write of where the virtual functions are; it comes before the store, as all calls do.
extern "C" SIMT_API void __tsan_vptr_update(void** at, void*) { any_size(at, sizeof *at, true, SIMT_HERE, simt::of_class); }
extern "C" SIMT_API void __tsan_func_entry(void*) {}
extern "C" SIMT_API void __tsan_func_exit() {}
