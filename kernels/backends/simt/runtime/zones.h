// The shadow of a kernel's memory: what is remembered of every granule of every array it may access.
#pragma once
#include "state.h"

namespace simt {
enum : uint16_t { by_atomic = 1, by_volatile = 2, of_one_block = 4, wrote = 8, after_fence = 16, in_flight = 32, more_writes = 64, read_too = 128, swapped = 256, of_class = 512 };

struct Stamp {
  uint32_t interval;  // 0: never
  uint32_t clock;     // of the thread among its warp's; of a copy in flight: which flight
  uint16_t thread, flags;
  uint32_t pc;
};
constexpr uint32_t flying = ~uint32_t{0};  // the interval of copies in flight: of none

// Of one granule of memory: its last write, its last read, and what else happened that this one is not ordered behind: by
// any thread of the block, and by another block or at least another warp. A line of the cache.
struct alignas(64) Cell {
  Stamp write, others[3];
};

struct alignas(32) Zone {
  uintptr_t begin, end;
  Cell* cells;
  uint32_t since;         // the first interval that counts: of the launch, in shared memory of the block
  uint8_t traits, shift;  // a granule has 1 << shift bytes
};

constexpr int most_zones = 8192, pc_slots = 4096;
extern Zone zones[most_zones];
extern uint16_t zone_at[pc_slots];  // by instruction, the zone that it accessed last

extern int zone_count;
void forget_zones(bool all);  // before a launch: all that they knew, too
void add_zone(uintptr_t begin, size_t bytes, int traits);
void place_cells();
void refine(Zone& zone, int shift);  // accesses are finer than its granules
Zone* search_zone(uintptr_t address);
int nearest_zone(uintptr_t address);  // that it just misses; -1 if it is far from all

// An instruction mostly accesses what it accessed before.
inline Zone& likely_zone(uintptr_t pc) { return zones[zone_at[pc % pc_slots]]; }

inline Zone* zone_of(uintptr_t address, uintptr_t pc) {
  Zone& likely = likely_zone(pc);
  if (address - likely.begin < likely.end - likely.begin) return &likely;
  Zone* found = search_zone(address);
  if (found) zone_at[pc % pc_slots] = static_cast<uint16_t>(found - zones);
  return found;
}
}  // namespace simt
