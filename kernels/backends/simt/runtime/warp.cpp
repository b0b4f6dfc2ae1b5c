// Where lanes of a warp meet: the last one to arrive works out what each of them gets.
#include "state.h"

#include <stdio.h>
#include <string.h>

namespace simt {
int undefined_line;

namespace {
const char* const names[] = {
    "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
    "__all_sync", "__uni_sync", "__match_any_sync", "__match_all_sync", "__reduce_add_sync", "__reduce_min_sync",
    "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync", "an operation of the whole warp",
};
const char* name_of(Op op) { return names[static_cast<int>(op)]; }

SIMT_EACH void (*combine)(uint64_t*);

template <class F>
void for_each(uint32_t lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

// Which lane a shuffle reads from (PTX ISA, shfl.sync).
int source_of(const Request& t, int lane) {
  int width = static_cast<int>(t.width), begin = lane & ~(width - 1), end = begin + width;
  int which = static_cast<int>(t.which), from;
  switch (t.op) {
    case Op::shuffle_index: return begin + (which & (width - 1));
    case Op::shuffle_up: from = lane - (which & 31); return from < begin ? lane : from;
    case Op::shuffle_down: from = lane + (which & 31); return from >= end ? lane : from;
    default: from = lane ^ (which & 31); return from >= end ? lane : from;
  }
}

__attribute__((noinline)) void warn_undefined(const Request& t, const Warp& w, int lane, int from) {
  const char* why = !(w.all & bit(from)) ? "which the block does not have"
                    : t.mask & bit(from) ? "which has ended"
                                         : "which is not in the mask";
  char text[128];
  snprintf(text, sizeof text, "%s of lane %d reads from lane %d, %s", name_of(t.op), lane, from, why);
  warn(Trouble::undefined_lane, S.current + lane - lane_of(S.current), t.at, text);
}

// Whether undefined values of that line are others in this run: what the thread has itself, as a device often gives.
bool is_other(Place at) { return at.line == undefined_line || undefined_line < 0; }

// What is read from a lane that takes no part is undefined, and does no harm to whoever drops it (CUDA C++ Programming
// Guide, "Warp Shuffle Functions"): it is another value in each run of a case, so that results show whether it is used.
void shuffle(Request* lanes, const Warp& w, uint32_t mask) {
  for_each(mask, [&](int lane) {
    Request& t = lanes[lane];
    int from = source_of(t, lane);
    uint64_t undefined = is_other(t.at) ? t.value : S.launch->undefined_byte * 0x0101010101010101u;
    t.result = mask & bit(from) ? lanes[from].value : undefined;
    if (!(mask & bit(from))) warn_undefined(t, w, lane, from);
  });
}

void reduce(Request* lanes, uint32_t mask, Op op) {
  int64_t found = static_cast<int64_t>(lanes[__builtin_ctz(mask)].value);
  for_each(mask & (mask - 1), [&](int lane) {
    int64_t x = static_cast<int64_t>(lanes[lane].value);
    switch (op) {
      case Op::add: found += x; break;
      case Op::minimum: found = x < found ? x : found; break;
      case Op::maximum: found = x > found ? x : found; break;
      case Op::bit_and: found &= x; break;
      case Op::bit_or: found |= x; break;
      default: found ^= x;
    }
  });
  for_each(mask, [&](int lane) { lanes[lane].result = static_cast<uint64_t>(found); });
}

void vote(Request* lanes, uint32_t mask, Op op) {
  uint32_t yes = 0;
  for_each(mask, [&](int lane) { yes |= lanes[lane].value ? bit(lane) : 0; });
  uint64_t found = op == Op::ballot ? yes : op == Op::any ? yes != 0 : op == Op::all ? yes == mask : yes == mask || !yes;
  for_each(mask, [&](int lane) { lanes[lane].result = found; });
}

void match(Request* lanes, uint32_t mask, Op op) {
  for_each(mask, [&](int lane) {
    uint32_t same = 0;
    for_each(mask, [&](int other) { same |= lanes[other].value == lanes[lane].value ? bit(other) : 0; });
    lanes[lane].result = op == Op::match_any || same == mask ? same : 0;
  });
}

void work_out(Request* lanes, const Warp& w, uint32_t mask, Op op) {
  switch (op) {
    case Op::sync: break;
    case Op::shuffle_index: case Op::shuffle_up: case Op::shuffle_down: case Op::shuffle_xor:
      shuffle(lanes, w, mask);
      break;
    case Op::ballot: case Op::any: case Op::all: case Op::uniform: vote(lanes, mask, op); break;
    case Op::match_any: case Op::match_all: match(lanes, mask, op); break;
    case Op::whole_warp: {
      uint64_t values[warp_lanes] = {};  // of lanes that there are not: 0
      for_each(mask, [&](int lane) { values[lane] = lanes[lane].value; });
      combine(values);
      break;
    }
    default: reduce(lanes, mask, op);
  }
}

// Whether all that a lane waits for have come, with the same mask. Those that wait in another one, as for the other lanes
// of a part of the warp, may go on, and come later.
bool all_came(const Request* lanes, const Warp& w, uint32_t mask, uint32_t wanted) {
  if ((w.at_warp & wanted) != wanted) return false;
  bool same = true;
  for_each(wanted, [&](int lane) { same &= lanes[lane].mask == mask; });
  return same;
}

// They must want the same, too.
void check_agreement(Request* lanes, uint32_t mask, const Request& me) {
  for_each(mask, [&](int lane) {
    const Request& t = lanes[lane];
    if (t.op == me.op) return;
    char text[256];
    snprintf(text, sizeof text, "%s here, while lane %d of the same warp is at %s of line %d", name_of(me.op), lane, name_of(t.op),
             t.at.line);
    fail(Trouble::bad_mask, me.at, text);
  });
}

// In a function of its own, as is whatever needs room for words: the stacks of threads stay small where they wait.
[[noreturn]] __attribute__((noinline)) void outside(Op op, int lane, uint32_t mask, Place at) {
  char text[128];
  snprintf(text, sizeof text, "%s by lane %d, which is not in its own mask %#x", name_of(op), lane, mask);
  fail(Trouble::bad_mask, at, text);
}

void complete(int number, uint32_t wanted, const Request& last) {
  Request* lanes = S.requests + number * warp_lanes;
  Warp& w = S.warps[number];
  check_agreement(lanes, wanted, last);
  // It is not waited for, and CUDA allows that: of a whole program it is told all the same.
  if (uint32_t gone = last.mask & w.ended; gone && watcher)
    warn(Trouble::ended_lane, number * warp_lanes + __builtin_ctz(gone), last.at, name_of(last.op));
  work_out(lanes, w, wanted, last.op);
  if (checking && last.op == Op::sync) shadow_warp(number, wanted);  // nothing else orders memory (CUDA C++ Programming Guide)
  w.at_warp &= ~wanted;
}
}  // namespace

uint64_t warp(Op op, uint32_t mask, uint64_t value, uint32_t which, uint32_t width, Place at) {
  settle_row();
  int me = S.current, number = warp_of(me), lane = lane_of(me);
  Warp& w = S.warps[number];
  Request& t = S.requests[me];
  if (checking) shadow_settle();
  if (!(mask & bit(lane))) outside(op, lane, mask, at);
  if (width - 1 > 31 || (width & (width - 1))) fail(Trouble::bad_mask, at, "the width of a shuffle must be 1, 2, 4, 8, 16 or 32");
  t.op = op, t.mask = mask, t.value = value, t.which = which, t.width = width, t.at = at;
  w.at_warp |= bit(lane);
  uint32_t wanted = mask & w.all & ~w.ended;  // a GPU waits for the lanes that have not ended
  if (!all_came(S.requests + number * warp_lanes, w, mask, wanted)) {
    converge(number);
    leave();
    return t.result;
  }
  complete(number, wanted, t);
  if (last_goes_on()) {
    wake(number, wanted & ~bit(lane));
  } else {
    wake(number, wanted);
    leave();
  }
  return t.result;
}

void warp_together(void (*together)(uint64_t*), uint64_t value, Place at) {
  combine = together;
  warp(Op::whole_warp, ~0u, value, 0, 32, at);
}

void complete_without(int thread) {
  int number = warp_of(thread);
  Request* lanes = S.requests + number * warp_lanes;
  Warp& w = S.warps[number];
  for_each(w.at_warp, [&](int lane) {
    const Request& t = lanes[lane];
    uint32_t wanted = t.mask & w.all & ~w.ended;
    if (!(w.at_warp & bit(lane)) || !(t.mask & bit(lane_of(thread))) || !all_came(lanes, w, t.mask, wanted)) return;
    complete(number, wanted, t);
    wake(number, wanted);
  });
}

void disagree(int thread) {
  const Request* lanes = S.requests + warp_of(thread) * warp_lanes;
  const Request& me = S.requests[thread];
  const Warp& w = S.warps[warp_of(thread)];
  for_each(me.mask & w.at_warp, [&](int lane) {
    if (lanes[lane].mask == me.mask) return;
    char text[256];
    snprintf(text, sizeof text, "%s with the mask %#x, while lane %d of it says %#x", name_of(me.op), me.mask, lane, lanes[lane].mask);
    fail(Trouble::bad_mask, me.at, text);
  });
}

void make_undefined(void* value, size_t bytes, const char* of, Place at) {
  if (!is_other(at)) memset(value, S.launch->undefined_byte, bytes);
  if (watcher && checking && lane_of(S.current) == 1) warn(Trouble::undefined_result, S.current, at, of);  // once a warp
}

// What runs together on a GPU cannot be told here. As much as can: whoever else comes to the same place before all
// other lanes wait for something.
uint32_t active_lanes(Place at) {
  settle_row();
  int me = S.current, number = warp_of(me);
  Request& t = S.requests[me];
  if (checking) shadow_settle();
  t.at = at;
  S.warps[number].converging |= bit(lane_of(me));
  converge(number);
  leave();
  return static_cast<uint32_t>(t.result);
}

void converge_now(int number) {
  Warp& w = S.warps[number];
  Request* lanes = S.requests + number * warp_lanes;
  for_each(w.converging, [&](int lane) {
    uint32_t here = 0;
    for_each(w.converging, [&](int other) { here |= lanes[other].at.line == lanes[lane].at.line ? bit(other) : 0; });
    lanes[lane].result = here;
  });
  uint32_t woken = w.converging;
  w.converging = 0;
  wake(number, woken);
}
}  // namespace simt
