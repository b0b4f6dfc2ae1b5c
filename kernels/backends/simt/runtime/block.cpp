// A launch, a block of it with all its threads, and the barrier.
#include "state.h"

#include <time.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

SIMT_EACH uint3 thread_index, block_index;
dim3 block_extent, grid_extent;

namespace simt {
SIMT_EACH char* dynamic_shared;

namespace {
constexpr size_t most_dynamic = 256 << 10;
char* make_dynamic() {
  char* got = static_cast<char*>(reserve(most_dynamic + 4096, "shared memory"));
  mprotect(got + most_dynamic, 4096, PROT_NONE);
  return got;
}
constexpr int poison = 0xff;  // NaN in every float format, -1 in integers
uint64_t blocks_of(const uint32_t* extent) { return uint64_t{extent[0]} * extent[1] * extent[2]; }

// Blocks have no order on a GPU: from the last on, or every `step`-th from a drawn one.
uint64_t block_number(uint64_t turn, uint64_t blocks) {
  Launch& l = *S.launch;
  switch (static_cast<Order>(l.order)) {
    case Order::identity: return turn;
    case Order::reverse: return blocks - 1 - turn;
    default: {
      uint64_t step = blocks > 2 ? l.seed % (blocks - 1) + 1 : 1;
      while (std::gcd(step, blocks) != 1) ++step;
      return static_cast<uint64_t>((static_cast<unsigned __int128>(turn) * step + l.seed / 7) % blocks);
    }
  }
}

void number_block(uint64_t number) {
  const uint32_t* grid = S.launch->grid;
  S.block = number;
  block_index = {static_cast<unsigned>(number % grid[0]), static_cast<unsigned>(number / grid[0] % grid[1]),
                 static_cast<unsigned>(number / grid[0] / grid[1])};
  S.alive = S.count;
  S.arrived = S.said_yes = S.passed = S.at_grid = S.idle = 0;
  S.current = S.skipper = -1;
  if (S.shared_bytes) memset(S.shared, poison, S.shared_bytes);
  if (S.launch->dynamic_shared) memset(dynamic_shared, poison, S.launch->dynamic_shared);
  for (int w = 0; w < S.warp_count; ++w) {
    int lanes = S.count - w * warp_lanes;
    S.warps[w] = {};
    S.warps[w].all = S.warps[w].fresh = lanes >= warp_lanes ? ~0u : bit(lanes) - 1;
  }
}

void number_threads() {
  const uint32_t* extent = S.launch->block;
  unsigned i = 0;
  for (unsigned z = 0; z < extent[2]; ++z)
    for (unsigned y = 0; y < extent[1]; ++y)
      for (unsigned x = 0; x < extent[0]; ++x) S.threads[i++].index = {x, y, z};
}

}  // namespace

// Whatever else is known of it is there already.
void tell(Fault& f, Trouble trouble, Place at, const char* text) {
  f.trouble = static_cast<int32_t>(trouble);
  f.region = f.other = -1;
  f.thread = S.current;
  f.block = static_cast<uint32_t>(S.block);
  set_place(f, at);
  snprintf(f.text, sizeof f.text, "%s", text);
}

__attribute__((noinline)) void warn(Trouble trouble, int thread, Place at, const char* text) {
  Fault f{};
  tell(f, trouble, at, text);
  f.thread = thread;
  warn(f);
}

namespace {
// Who returns before the first barrier is out of range, as a rule. Who has met the others once is expected again.
void pass_barrier() {
  if (S.skipper >= 0) warn(Trouble::skipped_barrier, S.skipper, S.barrier_at, "");
  ++S.passed;
  S.idle = 0;
  S.vote_result = S.said_yes;
  S.vote_all = S.said_yes == S.arrived;
  S.arrived = S.said_yes = 0;
  if (checking) shadow_barrier();
  schedule_interval();
  for (int w = 0; w < S.warp_count; ++w) {
    wake(w, S.warps[w].at_barrier);
    S.warps[w].at_barrier = 0;
  }
}
bool is_same(Place a, Place b) {
  return a.line == b.line && a.number == b.number && (a.file == b.file || !strcmp(a.file, b.file));
}
__attribute__((noinline)) void diverged(int there, Place at) {
  char text[256];
  const char* others = there == 1 ? " other waits" : " others wait";
  const char* which = S.barrier_at.line == at.line ? "another" : "the";
  snprintf(text, sizeof text, "here, while %d%s at %s barrier of line %d", there, others, which, S.barrier_at.line);
  if (!watcher) fail(Trouble::divergent_barrier, at, text);
  Fault f{};
  tell(f, Trouble::divergent_barrier, at, text);
  watcher->found(f, false);
}
}  // namespace

int barrier(Vote vote, int said, Place at) {
  settle_row();
  int me = S.current, there = S.arrived;
  if (checking) shadow_settle();
  if (!there) S.barrier_at = at;
  else if (!is_same(S.barrier_at, at)) diverged(there, at);
  S.warps[warp_of(me)].at_barrier |= bit(lane_of(me));
  S.said_yes += said;
  if (++S.arrived == S.alive) pass_barrier();
  else converge(warp_of(me));
  leave();
  return vote == Vote::all ? S.vote_all : vote == Vote::any ? S.vote_result > 0 : S.vote_result;
}

void thread_ended() {
  int me = S.current;
  if (checking) shadow_settle();
  S.warps[warp_of(me)].ended |= bit(lane_of(me));
  if (S.passed) S.skipper = me;
  --S.alive;
  S.idle = 0;
  complete_without(me);
  converge(warp_of(me));
  if (S.at_grid && S.at_grid == S.alive) block_at_grid();
  if (S.arrived && S.arrived == S.alive) pass_barrier();  // a GPU waits for those that have not ended
}

void stuck() {
  if (!S.alive) return;
  char text[256], lanes[64] = "";
  int at_warp = -1, waiting = 0;
  for (int w = 0; w < S.warp_count; ++w)
    if (S.warps[w].aside) return;  // another block's turn
  if (S.at_grid && S.arrived) {
    snprintf(text, sizeof text, "%d of its threads wait here, and %d at the barrier of the whole grid", S.arrived, S.at_grid);
    fail(Trouble::deadlock, S.barrier_at, text);
  }
  for (int i = 0; i < S.count; ++i) {
    bool waits = S.warps[warp_of(i)].at_warp & bit(lane_of(i));
    if (waits && at_warp < 0) at_warp = i;
    waiting += waits;
  }
  if (at_warp < 0) return;
  const char* who = waiting == 1 ? "thread waits" : "threads wait";
  const Request& t = S.requests[at_warp];
  const Warp& w = S.warps[warp_of(at_warp)];
  uint32_t missing = t.mask & w.all & ~w.at_warp & ~w.ended;
  S.current = at_warp;
  if (!missing) disagree(at_warp);
  if (missing) snprintf(lanes, sizeof lanes, " for lane %d", __builtin_ctz(missing));
  if (S.arrived)
    snprintf(text, sizeof text, "%d %s here%s, and %d at the barrier of line %d", waiting, who, lanes, S.arrived,
             S.barrier_at.line);
  else
    snprintf(text, sizeof text, "%d %s here%s for ever", waiting, who, lanes);
  fail(Trouble::deadlock, t.at, text);
}

static SIMT_EACH sigjmp_buf out;

// Ends the launch; the threads are left where they are.
void fail(Trouble trouble, Place at, const char* text) {
  if (checking && trouble == Trouble::deadlock) shadow_block_end();  // perhaps of what nobody has set
  Fault& f = S.launch->fault;
  if (f.trouble == static_cast<int32_t>(Trouble::none)) tell(f, trouble, at, text);
  S.over = crew.stops = true;
  siglongjmp(out, 1);
}

bool in_kernel() { return S.active && S.current >= 0; }

thread_local unsigned long long bounds_told;
void launch_bounds(long long most) {
  long long threads = 1ll * block_extent.x * block_extent.y * block_extent.z;
  if (!in_kernel()) bounds_told = std::max(most, 0ll);
  else if (most > 0 && threads > most) {
    char text[96];
    snprintf(text, sizeof text, "a block of %lld threads, but its __launch_bounds__ allow %lld", threads, most);
    fail(Trouble::launch_bounds, {"", 0}, text);
  }
}

// As the C library counts, whose clock() is a program's own.
long host_clock() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * CLOCKS_PER_SEC + used.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}

void step_aside() {
  if (!S.active || S.current < 0) return;
  settle_row();
  int me = S.current;
  S.over |= crew.stops;
  if (checking) shadow_settle();
  S.warps[warp_of(me)].aside |= bit(lane_of(me));
  converge(warp_of(me));
  leave();
}

void poll() {
  constexpr int patience = 16;
  share_turn();
  if (++S.polls <= patience) return;
  S.polls = 0;
  step_aside();
}

uint64_t random_of_launch(uint64_t n) {
  static SIMT_EACH uint64_t state;
  if (!n) state = S.launch->seed;
  state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
  return n ? (state >> 33) % n : 0;
}

void begin_block(uint64_t turn) {
  uint64_t blocks = blocks_of(S.launch->grid), ends = S.launch->ends, left_out = blocks - S.blocks;
  number_block(left_out ? turn + (turn < ends ? 0 : left_out) : block_number(turn, blocks));
  schedule_block();
  if (checking) shadow_block();
}

static uint64_t blocks_run(uint64_t blocks, uint64_t ends) { return ends && blocks > 2 * ends ? 2 * ends : blocks; }

int launch(Launch* how, void (*kernel)(const void*), const void* arguments, const void* anchor) {
  S.launch = how;
  if (!dynamic_shared) dynamic_shared = make_dynamic();
  S.kernel = kernel;
  S.arguments = arguments;
  S.over = false;
  how->fault = how->warning = {};
  how->warnings = 0;
  S.switches = 0;
  S.row.hopeless = false;
  block_extent = dim3(how->block[0], how->block[1], how->block[2]);
  grid_extent = dim3(how->grid[0], how->grid[1], how->grid[2]);
  S.count = static_cast<int>(blocks_of(how->block));
  S.warp_count = (S.count + warp_lanes - 1) / warp_lanes;
  S.blocks = blocks_run(blocks_of(how->grid), how->ends);
  number_threads();
  find_library(anchor);
  random_of_launch(0);
  forget_blocks();
  forget_named_barriers();
  acting_for = nullptr;
  shadow_launch();
  guard_begin();
  S.active = true;
  if (!sigsetjmp(out, 1)) run_blocks();
  S.active = false;
  guard_end();
  shadow_end();
  how->switches = S.switches;
  return how->fault.trouble;
}
}  // namespace simt
