// What is ordered before what: happens-before, as PTX defines it (docs/memory-order.md says it in words).
//
// Program order and barriers need no more than numbers of intervals; lanes of a warp have vector clocks for what
// __syncwarp orders. What one thread learns of another by an atomic operation is rare, and kept as it was said: a release
// is what the releasing thread knew, each address has a log of the releases that who reads it learns of, and a thread
// knows a log up to some length.
#pragma once
#include "zones.h"

#include <memory>
#include <vector>

namespace simt {
struct Log;
// What has been read of a log.
struct Ref {
  Log* log;
  uint32_t length;
  bool narrow;  // with the scope of a block
};
using Refs = std::vector<Ref>;

// What a thread, or several of a block, knew as they passed a fence.
struct Snapshot {
  uint32_t interval;
  uint64_t block;
  int first;                     // thread
  std::vector<uint32_t> clocks;  // of threads from the first on
  std::shared_ptr<const Refs> of_block;
  Refs own;
};
using Said = std::shared_ptr<const Snapshot>;

// Of one thread: what it has learnt, what it will have learnt once it passes a fence, what of that a barrier is enough for,
// its own last fences, its copies.
struct Learner {
  Refs acquired, pending, tickets;
  Said narrow, wide;
  uint32_t filling = 0;             // the flight of copies that it has not committed; 0: none
  std::vector<uint32_t> committed;  // flights that it has not waited for
};
struct Knowledge {
  std::vector<Learner> threads;  // none before the first fence
  std::shared_ptr<const Refs> of_block;
  Said wide;  // fences of any thread before the last barrier
};

// Copies in the background (__pipeline_memcpy_async): those that a thread begins between two commits.
struct Flight {
  uint32_t interval, clock;  // when it has landed; until then the interval in which it began
  bool landed;
};

extern uint32_t clocks[max_threads][warp_lanes];
extern uint32_t launch_begin, grid_begin;  // intervals: of this launch, and behind its last barrier of the whole grid
extern bool said_anything;                 // in this launch: whether there is anything to learn

uint64_t block_of(uint32_t interval);
Stamp landed(const Stamp& flying);  // interval 0: of an earlier launch; in_flight still, if it is
bool learnt(const Stamp& s);

inline bool is_mine(uint32_t interval) {
  return interval >= S.mine_from || interval == S.interval || (interval >= S.block_begin && block_of(interval) == S.block);
}

// Whether it happened before what this thread does now.
inline bool ordered(const Stamp& s) {
  if (s.flags & in_flight) return false;
  if (is_mine(s.interval)) {
    if (s.interval != S.interval || s.thread == S.current) return true;
    bool same_warp = warp_of(s.thread) == warp_of(S.current);
    if (same_warp && clocks[S.current][lane_of(s.thread)] >= s.clock) return true;
  } else if (s.interval < grid_begin) return true;
  return said_anything && learnt(s);
}

bool fenced();       // this thread, so far
uint32_t flight();   // the one that this thread's copies are in
void synchronize(uintptr_t address, bool is_shared, int how);
void order_launch(bool worn);
void order_block();

// ---- a block that is put aside -----------------------------------------------------------------------------------------
struct ShadowOfBlock {
  std::vector<uint32_t> clocks;
  Knowledge knowledge;
  std::vector<std::vector<Cell>> cells;  // of each zone in shared memory
  std::vector<int> shifts;
};
void shadow_park(ShadowOfBlock& to);
void shadow_resume(ShadowOfBlock& from);
void shadow_grid_barrier();
void shadow_grid_passed(BlockState& state, ShadowOfBlock& shadow);
}  // namespace simt
