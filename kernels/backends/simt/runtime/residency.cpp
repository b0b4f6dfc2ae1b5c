// Blocks that are on the device at the same time. One has its turn until all of its threads have ended or wait; then the
// next begins, or goes on where it left off, so that a block may wait for an earlier one or for a later one. A launch that
// shares takes the turn away at drawn accesses, too.
#include "happens.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace simt {
namespace {
struct Parked {
  BlockState state;
  std::vector<Thread> threads;
  std::vector<Request> requests;
  std::vector<Warp> warps;
  std::vector<char> memory, dynamic_memory;
  uint3 index;
  bool waits_for_grid;
  ShadowOfBlock shadow;
};
SIMT_EACH_MADE std::deque<Parked> parked;
SIMT_EACH uint64_t at_grid;
SIMT_EACH uint64_t capacity;  // blocks that the device holds, or the share of this one of the crew
SIMT_EACH uint64_t changes, until_change;  // of turns that were shared; accesses before the next one

void park() {
  Parked& p = parked.emplace_back();
  if (checking) shadow_settle();
  p.state = S;
  p.threads.assign(S.threads, S.threads + S.count);
  p.requests.assign(S.requests, S.requests + S.count);
  p.warps.assign(S.warps, S.warps + S.warp_count);
  p.memory.assign(S.shared, S.shared + S.shared_bytes);
  p.dynamic_memory.assign(dynamic_shared, dynamic_shared + S.launch->dynamic_shared);
  p.index = block_index;
  p.waits_for_grid = S.at_grid && S.at_grid == S.alive;
  if (checking) shadow_park(p.shadow);
}

void wake_from_grid() {
  for (int w = 0; w < S.warp_count; ++w) {
    wake(w, S.warps[w].at_grid);
    S.warps[w].at_grid = 0;
  }
  S.at_grid = S.idle = 0;
}

void resume(size_t which) {
  Parked p = std::move(parked[which]);
  parked.erase(parked.begin() + which);
  static_cast<BlockState&>(S) = p.state;
  std::copy(p.threads.begin(), p.threads.end(), S.threads);
  std::copy(p.requests.begin(), p.requests.end(), S.requests);
  std::copy(p.warps.begin(), p.warps.end(), S.warps);
  std::copy(p.memory.begin(), p.memory.end(), S.shared);
  std::copy(p.dynamic_memory.begin(), p.dynamic_memory.end(), dynamic_shared);
  block_index = p.index;
  S.idle = 0;
  if (checking) shadow_resume(p.shadow);
  if (!p.waits_for_grid && S.at_grid == S.alive) wake_from_grid();
}

// One that is parked and can go on; whoever has waited longest, or, where orders are drawn, any.
size_t choose() {
  bool drawn = S.launch->shares || static_cast<Order>(S.launch->order) > Order::reverse;
  size_t from = drawn && !parked.empty() ? random_of_launch(parked.size()) : 0;
  for (size_t i = 0; i < parked.size(); ++i) {
    size_t which = (from + i) % parked.size();
    if (!parked[which].waits_for_grid) return which;
  }
  return parked.size();
}

[[noreturn]] void never_met() {
  char text[256];
  resume(0);
  snprintf(text, sizeof text, "%zu of %zu blocks came to this barrier of the whole grid, and the others have ended",
           parked.size() + 1, static_cast<size_t>(S.blocks));
  fail(Trouble::deadlock, S.grid_at, text);
}

bool has_room() { return crew.begun < S.blocks && parked.size() + 1 <= capacity && have_stacks(S.count); }
}  // namespace

// As today's have room for (CUDA C++ Programming Guide, "Compute Capabilities").
uint64_t blocks_at_once(uint64_t threads, uint64_t shared) {
  constexpr uint64_t most_threads = 2048, most_blocks = 32, most_shared = 228 << 10, own_shared = 1 << 10;
  uint64_t warps = (threads + warp_lanes - 1) / warp_lanes;
  return std::min({most_threads / (warps * warp_lanes), most_blocks, most_shared / (shared + own_shared)});
}

void forget_blocks() {
  parked.clear();
  at_grid = changes = until_change = 0;
  if (!S.of_crew) crew.begun = 0, crew.stops = false;
  capacity = !S.count ? 0 : processors * blocks_at_once(S.count, S.launch->dynamic_shared + S.launch->static_shared);
  capacity = (capacity + crew.size - 1) / crew.size;
  begin_stacks();
}

bool under_way(uint32_t interval) {
  return std::any_of(parked.begin(), parked.end(), [=](const Parked& p) { return p.state.interval == interval; });
}

// They come ever more seldom, so that a launch of many accesses costs little more for it.
void share_turn() {
  constexpr uint64_t often = 16, before_doubling = 512, most_doublings = 20;
  if (!S.active || S.current < 0 || !S.launch->shares || !S.others || until_change--) return;
  until_change = random_of_launch(often << std::min(changes++ / before_doubling, most_doublings));
  settle_row();
  if (checking) shadow_settle();
  int me = S.current;
  const void* acting = acting_for;
  wake(warp_of(me), bit(lane_of(me)));
  switch_to(-1, &S.threads[me].stack_pointer);
  acting_for = acting;
}

void run_blocks() {
  while (!S.over && !crew.stops) {
    bool begins = has_room() && (parked.empty() || !S.launch->shares || random_of_launch(2));
    size_t which = begins ? 0 : choose();
    uint64_t turn = S.blocks;
    if (begins || (which == parked.size() && has_room())) turn = crew.begun++;
    if (turn < S.blocks) begin_block(turn);
    else if (begins) continue;  // another of the crew took the last one
    else if (parked.empty()) return;
    else if (which < parked.size()) resume(which);
    else never_met();
    S.others = has_room() || choose() < parked.size();
    run_threads();
    if (S.over) return;
    if (S.alive) park();
    else if (checking) shadow_block_end();
  }
}

void block_at_grid() {
  if (++at_grid < S.blocks) return;
  at_grid = 0;
  if (checking) shadow_grid_barrier();
  for (Parked& p : parked) {
    p.waits_for_grid = false;
    if (checking) shadow_grid_passed(p.state, p.shadow);
  }
  wake_from_grid();
  S.others = !parked.empty();  // they go on
}

bool may_meet() { return !S.launch->is_plain; }

void check_grid(Place at) {
  if (!may_meet())
    fail(Trouble::trap, at, "a barrier of the whole grid in a launch that is not cooperative (is_valid() is false) is reached");
  if (S.blocks > capacity) {
    char text[256];
    snprintf(text, sizeof text, "a barrier of the whole grid is reached by %zu blocks, of which the emulated device holds %zu",
             static_cast<size_t>(S.blocks), static_cast<size_t>(capacity));
    fail(Trouble::deadlock, at, text);
  }
}

void grid_barrier(Place at) {
  check_grid(at);
  barrier(Vote::none, 0, at);
  int me = S.current;
  S.warps[warp_of(me)].at_grid |= bit(lane_of(me));
  S.grid_at = at;
  if (++S.at_grid == S.alive) block_at_grid();
  else converge(warp_of(me));
  leave();
}
}  // namespace simt
