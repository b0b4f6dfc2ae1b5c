// The checker: every access of the kernel against a shadow of its memory. Kernels to be checked are compiled with g++'s
// thread sanitizer, whose callbacks are defined here; its library is not linked.
//
// What orders two accesses: the same thread; a barrier between them; for lanes of a warp also their warp operations, by
// vector clocks; for blocks a fence and an atomic operation after the first, and an atomic operation before the second.
// Blocks run one after the other here, so what is kept of an access need not name its block: intervals between barriers
// are numbered over all blocks and all launches, and nothing has to be cleared.
#include "zones.h"

#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace simt {
bool checking;

namespace {
uintptr_t library_begin;
uint32_t interval, launch_begin, block_begin;
uint32_t clocks[max_threads][warp_lanes];

// What a thread wrote before a fence, with what it knew of the lanes of its warp.
struct Publication {
  uint32_t interval;
  int warp;
  uint32_t clocks[warp_lanes];
};
struct BlockRecord {
  uint32_t begin, published;  // intervals: what was written before `published` is
  uint64_t number;
  std::vector<Publication> by_thread;  // by interval
};
std::vector<BlockRecord> blocks;
bool fenced, acquired;
Publication fence_of[max_threads];  // the last of each thread

// A write that may be a race, or may change nothing: which of the two is known after it.
struct Pending {
  bool waits;
  Fault fault;
  unsigned char before[16];
  const void* at;
  int bytes;
  Cell* cell;
} pending;

// ---- faults ----------------------------------------------------------------------------------------------------------

struct Access {
  uintptr_t address, pc;
  int bytes;
  bool writes, atomic, is_volatile;
};

Fault fault_of(Trouble trouble, const Access& a, int region) {
  Fault f{};
  f.trouble = static_cast<int32_t>(trouble);
  f.region = region;
  f.offset = region >= 0 ? static_cast<int64_t>(a.address - zones[region].begin) : static_cast<int64_t>(a.address);
  f.bytes = a.bytes;
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

const BlockRecord& block_of(uint32_t when) {
  auto after = std::upper_bound(blocks.begin(), blocks.end(), when,
                                [](uint32_t t, const BlockRecord& b) { return t < b.begin; });
  return *(after - 1);
}

Fault race_with(const Stamp& s, bool other_writes, const Access& a, int region) {
  Fault f = fault_of(Trouble::race, a, region);
  f.other = s.thread;
  f.other_writes = other_writes;
  f.other_pc = s.pc;
  f.other_block = static_cast<uint32_t>(block_of(s.interval).number);
  return f;
}

// ---- order -----------------------------------------------------------------------------------------------------------

bool happened(const Stamp& s, bool is_shared) { return s.interval >= (is_shared ? block_begin : launch_begin); }

bool published(const Stamp& s) {
  const BlockRecord& b = block_of(s.interval);
  if (!acquired || s.interval < b.published) return acquired;
  for (auto p = b.by_thread.rbegin(); p != b.by_thread.rend() && p->interval >= s.interval; ++p)
    if (p->interval == s.interval && p->warp == s.thread / warp_lanes && p->clocks[lane_of(s.thread)] >= s.clock) return true;
  return false;
}

bool ordered(const Stamp& s) {
  if (s.interval < block_begin) return published(s);
  if (s.thread == S.current || s.interval < interval) return true;
  if (s.thread / warp_lanes != S.current / warp_lanes) return false;
  return clocks[S.current][lane_of(s.thread)] >= s.clock;
}

void expect_change(const Access& a, const Fault& f, Cell* cell) {
  if (pending.waits) return;
  pending.waits = true;
  pending.fault = f;
  pending.at = reinterpret_cast<const void*>(a.address);
  pending.bytes = std::min<int>(a.bytes, sizeof pending.before);
  pending.cell = cell;
  memcpy(pending.before, pending.at, pending.bytes);
}

void check_read(const Access& a, Cell& c, int region, bool is_shared) {
  if (!happened(c.write, is_shared)) {
    if ((zones[region].traits & (undefined | shared)) && !doubted) {
      doubted = true;
      doubt = fault_of(Trouble::uninitialized, a, region);
    }
    return;
  }
  bool both = (c.write.flags & by_atomic) && (a.atomic || a.is_volatile);
  if (both || ordered(c.write)) return;
  Fault f = race_with(c.write, true, a, region);
  if (c.write.flags & changed_nothing) warn(f);
  else raise(f);
}

void check_write(const Access& a, Cell& c, int region, bool is_shared) {
  bool both = a.atomic && (c.write.flags & by_atomic);
  if (happened(c.write, is_shared) && !both && !ordered(c.write)) expect_change(a, race_with(c.write, true, a, region), &c);
  for (const Stamp* s : {&c.read, &c.other_read})
    if (happened(*s, is_shared) && !ordered(*s) && !(a.atomic && (s->flags & by_atomic)))
      expect_change(a, race_with(*s, false, a, region), &c);
}

void note_read(Cell& c, const Stamp& now, bool is_shared) {
  if (c.read.interval == now.interval && c.read.thread == now.thread) {
    c.read = now;
    return;
  }
  if (c.read.interval == now.interval || (!is_shared && happened(c.read, false) && c.read.interval < block_begin)) c.other_read = c.read;
  c.read = now;
}

// The most frequent access by far: a read of one granule that a barrier separates from its last write, or whose writer
// reads it again, and that was read by this thread or by nobody since. Whether it was that, and was noted.
inline bool plain_read(uintptr_t address, uintptr_t pc, int bytes) {
  const Zone& z = likely_zone(pc);
  uintptr_t offset = address - z.begin;
  if (pending.waits || offset >= z.end - z.begin || bytes != 1 << z.shift || (offset & (bytes - 1))) return false;
  Cell& c = z.cells[offset >> z.shift];
  uint32_t begin = z.traits & shared ? block_begin : launch_begin;
  bool written = c.write.interval >= begin, known = !(z.traits & (undefined | shared));
  if (written ? c.write.interval >= interval || c.write.interval < block_begin : !known) return false;
  Stamp& r = c.read;
  auto me = static_cast<uint16_t>(S.current);
  uint32_t clock = clocks[me][lane_of(me)];
  if (r.thread != me && r.interval >= begin && (r.interval >= interval || r.interval < block_begin)) c.other_read = r;
  r = {interval, clock, me, 0, static_cast<uint32_t>(pc - library_begin)};
  return true;
}

bool judged(const Access& a) {
  int how = (a.writes ? a_write : 0) | (a.atomic ? an_atomic : 0) | (S.current < 0 || !S.active ? by_host : 0);
  return watcher->judged(a.address, a.bytes, how, a.pc);
}

void follow(const Access& a) {
  if (!S.active || S.current < 0 || is_stack(a.address)) return;
  if (pending.waits) shadow_settle();
  Zone* z = zone_of(a.address, a.pc);
  if (!z) {
    if (in_library(a.address) || in_runtime(a.address)) return;
    return raise(fault_of(Trouble::out_of_bounds, a, nearest_zone(a.address)));
  }
  int region = static_cast<int>(z - zones);
  if (a.address + a.bytes > z->end) return raise(fault_of(Trouble::out_of_bounds, a, region));
  if (a.writes && (z->traits & read_only)) return raise(fault_of(Trouble::read_only, a, region));
  bool is_shared = z->traits & shared;
  uintptr_t offset = a.address - z->begin;
  if (((offset | a.bytes) & ((1u << z->shift) - 1)) && z->shift) refine(*z, std::min(__builtin_ctzll(offset | a.bytes), z->shift));
  Stamp now{interval, clocks[S.current][lane_of(S.current)], static_cast<uint16_t>(S.current),
            static_cast<uint16_t>(a.atomic || (a.is_volatile && !a.writes) ? by_atomic : 0),
            static_cast<uint32_t>(relative(reinterpret_cast<void*>(a.pc)))};
  for (Cell *c = z->cells + (offset >> z->shift), *end = z->cells + ((offset + a.bytes - 1) >> z->shift); c <= end; ++c) {
    if (!a.writes || a.atomic) check_read(a, *c, region, is_shared);
    if (!a.writes) note_read(*c, now, is_shared);
    else {
      check_write(a, *c, region, is_shared);
      c->write = now;
      c->read = c->other_read = {};
    }
  }
}

void access(const Access& a) {
  if (!watcher || !judged(a)) follow(a);
}
}  // namespace

// ---- called by the rest of the runtime -------------------------------------------------------------------------------

void shadow_launch() {
  const Launch& l = *S.launch;
  checking = l.check;
  if (!checking) return;
  bool worn = interval > UINT32_MAX / 2;  // what is older than everything else must not come back
  forget_zones(worn);
  if (worn) interval = 0;
  for (uint32_t i = 0; i < l.region_count; ++i) add_zone(l.regions[i].begin, l.regions[i].bytes, l.regions[i].traits);
  for (uint32_t i = 0; i < l.shared_count; ++i)
    add_zone(reinterpret_cast<uintptr_t>(S.shared) + l.shared_arrays[i].begin, l.shared_arrays[i].bytes, l.shared_arrays[i].traits);
  add_zone(reinterpret_cast<uintptr_t>(dynamic_shared), l.dynamic_shared, shared);
  place_cells();
  launch_begin = interval + 1;
  library_begin = library_start();
  blocks.clear();
  pending.waits = doubted = false;
}

void shadow_end() { checking = false; }

void shadow_block() {
  block_begin = ++interval;
  blocks.push_back({interval, 0, S.block, {}});
  fenced = acquired = false;
  for (int i = 0; i < S.count; ++i) {
    std::fill_n(clocks[i], warp_lanes, 0u);
    clocks[i][lane_of(i)] = 1;
  }
}

void shadow_barrier() {
  shadow_settle();
  if (doubted) raise(doubt);
  doubted = false;
  ++interval;
}

void shadow_block_end() {
  shadow_settle();
  if (doubted) raise(doubt);
  doubted = false;
}

__attribute__((target_clones("avx2", "default"))) void shadow_warp(int warp, uint32_t mask) {
  uint32_t(*own)[warp_lanes] = clocks + warp * warp_lanes;
  uint32_t joined[warp_lanes] = {};
  for (int l = 0; l < warp_lanes; ++l)
    if (mask >> l & 1)
      for (int k = 0; k < warp_lanes; ++k) joined[k] = std::max(joined[k], own[l][k]);
  for (int l = 0; l < warp_lanes; ++l)
    if (mask >> l & 1) {
      memcpy(own[l], joined, sizeof joined);
      ++own[l][l];
    }
}

// Whether the last doubtful write changed anything: a race, or a warning.
void shadow_settle() {
  if (!pending.waits) return;
  pending.waits = false;
  if (memcmp(pending.before, pending.at, pending.bytes)) raise(pending.fault);
  pending.cell->write.flags |= changed_nothing;
  warn(pending.fault);
}

void shadow_fence() {
  int me = S.current, lane = lane_of(me);
  fenced = true;
  fence_of[me].interval = interval;
  fence_of[me].warp = me / warp_lanes;
  memcpy(fence_of[me].clocks, clocks[me], sizeof clocks[me]);
  ++clocks[me][lane];  // what it writes from now on is another matter
}

void fence() {
  if (checking) shadow_fence();
}

void atomic(void* at, int bytes, const void* caller) {
  if (!checking) return;
  access({reinterpret_cast<uintptr_t>(at), reinterpret_cast<uintptr_t>(caller), bytes, true, true, false});
  BlockRecord& b = blocks.back();
  if (fenced) b.published = interval;
  if (fence_of[S.current].interval == interval) b.by_thread.push_back(std::exchange(fence_of[S.current], {}));
  acquired = true;
}
}  // namespace simt

// ---- called by g++'s instrumentation ---------------------------------------------------------------------------------

#define SIMT_HERE reinterpret_cast<uintptr_t>(__builtin_return_address(0))
#define SIMT_CALLBACK(NAME, BYTES, WRITES, VOLATILE)                                                      \
  extern "C" SIMT_API void __tsan_##NAME##BYTES(void* at) {                                               \
    simt::access({reinterpret_cast<uintptr_t>(at), SIMT_HERE, BYTES, WRITES, false, VOLATILE});           \
  }
#define SIMT_CALLBACKS(BYTES)                           \
  extern "C" SIMT_API void __tsan_read##BYTES(void* at) { \
    auto address = reinterpret_cast<uintptr_t>(at);     \
    if (simt::watcher && simt::judged({address, SIMT_HERE, BYTES, false, false, false})) return; \
    if (simt::S.current < 0 || !simt::checking || simt::plain_read(address, SIMT_HERE, BYTES)) return; \
    simt::follow({address, SIMT_HERE, BYTES, false, false, false}); \
  }                                                     \
  SIMT_CALLBACK(write, BYTES, true, false)              \
  SIMT_CALLBACK(unaligned_read, BYTES, false, false)    \
  SIMT_CALLBACK(unaligned_write, BYTES, true, false)    \
  SIMT_CALLBACK(volatile_read, BYTES, false, true)      \
  SIMT_CALLBACK(volatile_write, BYTES, true, true)      \
  SIMT_CALLBACK(unaligned_volatile_read, BYTES, false, true) \
  SIMT_CALLBACK(unaligned_volatile_write, BYTES, true, true)
SIMT_CALLBACKS(1)
SIMT_CALLBACKS(2)
SIMT_CALLBACKS(4)
SIMT_CALLBACKS(8)
SIMT_CALLBACKS(16)
extern "C" SIMT_API void __tsan_read_range(void* at, size_t bytes) {
  simt::access({reinterpret_cast<uintptr_t>(at), SIMT_HERE, static_cast<int>(bytes), false, false, false});
}
extern "C" SIMT_API void __tsan_write_range(void* at, size_t bytes) {
  simt::access({reinterpret_cast<uintptr_t>(at), SIMT_HERE, static_cast<int>(bytes), true, false, false});
}

// memcpy and its like, as kernels call them.
static void copied(void* to, const void* from, size_t bytes, uintptr_t pc) {
  if (!(simt::checking || simt::watcher) || !bytes) return;
  if (from) simt::access({reinterpret_cast<uintptr_t>(from), pc, static_cast<int>(bytes), false, false, false});
  simt::access({reinterpret_cast<uintptr_t>(to), pc, static_cast<int>(bytes), true, false, false});
}
extern "C" SIMT_API void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  copied(to, from, bytes, SIMT_HERE);
  return memcpy(to, from, bytes);
}
extern "C" SIMT_API void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  copied(to, from, bytes, SIMT_HERE);
  return memmove(to, from, bytes);
}
extern "C" SIMT_API void* __wrap_memset(void* to, int byte, size_t bytes) {
  copied(to, nullptr, bytes, SIMT_HERE);
  return memset(to, byte, bytes);
}

extern "C" SIMT_API void __tsan_init() {}
extern "C" SIMT_API void __tsan_vptr_read(void**) {}
extern "C" SIMT_API void __tsan_vptr_update(void**, void*) {}
extern "C" SIMT_API void __tsan_func_entry(void*) {}
extern "C" SIMT_API void __tsan_func_exit() {}
