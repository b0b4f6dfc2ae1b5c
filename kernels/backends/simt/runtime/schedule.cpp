// Who goes on: six orders of threads, all found from bit masks of who could.
//
//   identity  every warp in turn, lanes from the first, each as far as it can
//   reverse   the same from the last warp and lane
//   shuffle   warps and lanes in an order drawn anew at every barrier, one lane of each warp in turn
//   random    whoever, drawn anew each time
//   rotate    every warp in turn from a drawn one, lanes from a drawn one
//   starve    one warp as far as it can, then the next, in an order drawn anew at every barrier: a warp that is far ahead
//             of all others finds what only ran right because warps kept pace
//
// In each of them a thread that steps aside, as it waits for another, goes on when all others have gone as far as they can.
#include "state.h"

#include <algorithm>
#include <utility>

namespace simt {
namespace {
SIMT_EACH Order how;                         // of this launch

uint64_t random_bits() {
  uint64_t x = S.turns.random_state += 0x9e3779b97f4a7c15u;  // splitmix64 (Steele, Lea, Flood 2014)
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

int lowest(uint32_t mask) { return __builtin_ctz(mask); }

inline int choose_lane(int warp, uint32_t lanes) {
  if (how == Order::reverse) return 31 - __builtin_clz(lanes);
  if (how == Order::random) {
    for (uint64_t skip = random_below(__builtin_popcount(lanes)); skip; --skip) lanes &= lanes - 1;
    return lowest(lanes);
  }
  int from = S.turns.first_lane[warp];
  uint32_t turned = from ? lanes >> from | lanes << (32 - from) : lanes;
  return (lowest(turned) + from) & 31;
}

int next_rank(int from) {
  uint32_t later = from < max_warps ? S.turns.ready_ranks >> from << from : 0;
  return lowest(later ? later : S.turns.ready_ranks);
}

inline int take(int rank, uint32_t lanes) {
  int warp = S.turns.warp_at[rank], lane = choose_lane(warp, lanes);
  Warp& w = S.warps[warp];
  w.ready &= ~bit(lane);
  if (!w.ready) S.turns.ready_ranks &= ~(1u << rank);
  S.turns.batch = lanes & ~bit(lane);
  return warp * warp_lanes + lane;
}
}  // namespace

uint64_t random_below(uint64_t n) { return random_bits() % n; }

bool last_goes_on() { return how == Order::identity || how == Order::starve; }

void schedule_interval() {
  if (how == Order::identity || how == Order::reverse) return;
  for (int i = S.warp_count - 1; i > 0; --i) std::swap(S.turns.warp_at[i], S.turns.warp_at[random_below(i + 1)]);
  for (int i = 0; i < S.warp_count; ++i) S.turns.rank_of[S.turns.warp_at[i]] = i;
  S.turns.ready_ranks = 0;
  for (int i = 0; i < S.warp_count; ++i) {
    S.turns.first_lane[i] = static_cast<int>(random_below(warp_lanes));
    if (S.warps[S.turns.warp_at[i]].ready) S.turns.ready_ranks |= 1u << i;
  }
  S.turns.batch = 0;
}

// All of a block, in the order in which next_thread() would give each its turn if none of them waited.
static void line_up() {
  Row& row = S.row;
  row.goes_on = !checking && !row.hopeless && how != Order::random;
  bool is_fixed = how == Order::identity || how == Order::reverse;
  if (!row.goes_on || (is_fixed && row.order == how && row.count == S.count)) return;
  row.order = how, row.count = S.count;
  int step = how == Order::shuffle ? S.warp_count : 1;  // one lane of each warp in turn, or warp after warp
  for (int rank = 0; rank < S.warp_count; ++rank) {
    uint16_t* to = row.threads + (step > 1 ? rank : rank * warp_lanes);
    int warp = S.turns.warp_at[rank], first = warp * warp_lanes, from = S.turns.first_lane[warp];
    uint32_t lanes = S.warps[warp].all;
    if (lanes == ~0u && how != Order::reverse)
      for (int turn = 0; turn < warp_lanes; ++turn, to += step)
        *to = static_cast<uint16_t>(first + ((from + turn) & (warp_lanes - 1)));
    else
      for (int turn = 0, lane; turn < warp_lanes; ++turn, to += step, lanes &= ~bit(lane))
        *to = static_cast<uint16_t>(lanes ? first + (lane = choose_lane(warp, lanes)) : max_threads);
  }
  std::remove(row.threads, row.threads + S.warp_count * warp_lanes, max_threads);
}

void schedule_block() {
  how = static_cast<Order>(S.launch->order);
  S.turns.random_state = S.launch->seed * 0x9e3779b97f4a7c15u + S.block * 0xd1342543de82ef95u;
  for (int i = 0; i < S.warp_count; ++i) {
    S.turns.warp_at[i] = how == Order::reverse ? S.warp_count - 1 - i : i;
    S.turns.rank_of[S.turns.warp_at[i]] = i;
    S.turns.first_lane[i] = 0;
  }
  S.turns.ready_ranks = 0;
  S.turns.cursor = -1;
  S.turns.batch = 0;
  for (int i = 0; i < S.warp_count; ++i) wake(i, S.warps[i].all);
  schedule_interval();
  line_up();
}

void wake(int warp, uint32_t lanes) {
  if (!lanes) return;
  S.warps[warp].ready |= lanes;
  S.turns.ready_ranks |= 1u << S.turns.rank_of[warp];
}

int next_thread() {
  constexpr int patience = 8;
  // Who waits for another thread may wait for one of another block.
  if (!S.turns.ready_ranks && !(S.others && ++S.idle > patience))
    for (int w = 0; w < S.warp_count; ++w) wake(w, std::exchange(S.warps[w].aside, 0u));
  if (!S.turns.ready_ranks) return -1;
  switch (how) {
    case Order::starve:
      return take(lowest(S.turns.ready_ranks), S.warps[S.turns.warp_at[lowest(S.turns.ready_ranks)]].ready);
    case Order::random: {
      uint32_t ranks = S.turns.ready_ranks;
      for (uint64_t skip = random_below(__builtin_popcount(ranks)); skip; --skip) ranks &= ranks - 1;
      return take(lowest(ranks), S.warps[S.turns.warp_at[lowest(ranks)]].ready);
    }
    case Order::shuffle:
      S.turns.cursor = next_rank(S.turns.cursor + 1);
      return take(S.turns.cursor, S.warps[S.turns.warp_at[S.turns.cursor]].ready);
    default:
      if (S.turns.cursor >= 0) S.turns.batch &= S.warps[S.turns.warp_at[S.turns.cursor]].ready;
      if (!S.turns.batch || S.turns.cursor < 0) {
        S.turns.cursor = next_rank(S.turns.cursor + 1);
        S.turns.batch = S.warps[S.turns.warp_at[S.turns.cursor]].ready;
      }
      return take(S.turns.cursor, S.turns.batch);
  }
}

void run_row() {
  // Locals stay in registers: what the kernel writes may be any memory.
  auto* kernel = S.kernel;
  auto* arguments = S.arguments;
  const uint16_t *next = S.row.threads + 1, *end = S.row.threads + S.count;
  for (kernel(arguments); S.row.goes_on; kernel(arguments)) {
    if (next == end) {
      S.row.goes_on = false;
      S.alive = 0, S.turns.ready_ranks = 0;
      S.threads[S.current].stack = S.threads[S.row.threads[0]].stack;
      return;
    }
    set_current(*next++);
  }
  thread_ended();
}

// The masks of the warps become what they are where each thread was given its turn.
void leave_row() {
  int me = S.current, ended = 0;
  auto begin = [](int thread) {
    Warp& w = S.warps[warp_of(thread)];
    w.fresh &= ~bit(lane_of(thread)), w.ready &= ~bit(lane_of(thread));
    if (!w.ready) S.turns.ready_ranks &= ~(1u << S.turns.rank_of[warp_of(thread)]);
  };
  for (const uint16_t* at = S.row.threads; *at != me; ++at, ++ended) {
    begin(*at);
    S.warps[warp_of(*at)].ended |= bit(lane_of(*at));
  }
  begin(me);
  S.alive -= ended;
  S.turns.cursor = S.turns.rank_of[warp_of(me)];
  S.turns.batch = S.warps[warp_of(me)].ready;
  S.threads[me].stack = S.threads[S.row.threads[0]].stack;
  S.row.goes_on = false;
  S.row.hopeless = ended < S.count / 8;
}
}  // namespace simt
