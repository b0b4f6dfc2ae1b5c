// Where the shadow lies: the zones of a launch, and the arena of their cells.
#include "zones.h"

#include <sys/mman.h>

#include <algorithm>

namespace simt {
Zone zones[most_zones];
uint16_t zone_at[pc_slots];
int zone_count;

namespace {
constexpr int first_shift = 2;
// Bytes of which hardly any is touched: to make granules finer would touch all of their shadow.
size_t vast() { return size_t{1} << (S.launch->ends ? 22 : 30); }
int remembered_shift[most_zones];  // of the kernel that ran last: how fine its accesses are
void (*remembered_kernel)(const void*);
Cell* arena;
size_t arena_cells;
}  // namespace

void forget_zones(bool all) {
  if (remembered_kernel != S.kernel) std::fill_n(remembered_shift, most_zones, first_shift);
  remembered_kernel = S.kernel;
  std::fill_n(zone_at, pc_slots, uint16_t{0});
  zone_count = 0, zones[0] = {};
  if (!all || !arena) return;
  munmap(arena, arena_cells * sizeof(Cell));
  arena = nullptr, arena_cells = 0;
}

void add_zone(uintptr_t begin, size_t bytes, int traits) {
  if (zone_count == most_zones) return;
  Zone& z = zones[zone_count];
  int shift = bytes < vast() ? remembered_shift[zone_count] : 0;
  z = {begin, begin + bytes, nullptr, 0, static_cast<uint8_t>(traits), static_cast<uint8_t>(shift)};
  ++zone_count;
}

void place_cells() {
  size_t wanted = 0;
  for (int i = 0; i < zone_count; ++i) wanted += zones[i].end - zones[i].begin;
  if (wanted > arena_cells) {
    if (arena) munmap(arena, arena_cells * sizeof(Cell));
    arena_cells = wanted + (wanted < vast() ? wanted / 2 : 0) + (64 << 10);
    arena = static_cast<Cell*>(reserve(arena_cells * sizeof(Cell), "the shadow of the arrays", wanted >= vast()));
  }
  size_t used = 0;
  for (int i = 0; i < zone_count; ++i) {
    zones[i].cells = arena + used;
    used += zones[i].end - zones[i].begin;
  }
}

// Each granule becomes several that know what it knew.
void refine(Zone& z, int shift) {
  size_t coarse = (z.end - z.begin + (size_t{1} << z.shift) - 1) >> z.shift, ratio = size_t{1} << (z.shift - shift);
  size_t fine = (z.end - z.begin + (size_t{1} << shift) - 1) >> shift;
  for (size_t i = coarse; i-- > 0;)
    for (size_t k = ratio; k-- > 0;)
      if (i * ratio + k < fine) z.cells[i * ratio + k] = z.cells[i];
  z.shift = shift;
  remembered_shift[&z - zones] = shift;
}

Zone* search_zone(uintptr_t address) {
  for (int i = 0; i < zone_count; ++i)
    if (address - zones[i].begin < zones[i].end - zones[i].begin) return &zones[i];
  return nullptr;
}

int nearest_zone(uintptr_t address) {
  constexpr uintptr_t near = 64 << 10;
  int found = -1;
  uintptr_t best = near;
  for (int i = 0; i < zone_count; ++i) {
    uintptr_t after = address - zones[i].end, before = zones[i].begin - address;
    uintptr_t distance = address >= zones[i].end ? after : before;
    if (distance < best) best = distance, found = i;
  }
  return found;
}
}  // namespace simt
