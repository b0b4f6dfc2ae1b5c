// Who knows of what: see happens.h.
#include "happens.h"

#include <string.h>

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace simt {
uint32_t clocks[max_threads][warp_lanes];
uint32_t launch_begin, grid_begin;
bool said_anything;

// One snapshot in the log of an address.
struct Entry {
  Said said;
  bool narrow;
};
struct Log {
  std::vector<Entry> entries;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_block;
  std::vector<uint32_t> with_refs;
  std::unordered_set<uintptr_t> has;  // snapshots; narrow ones plus 1
  bool any_narrow = false;
};

namespace {
uint32_t counter;               // of intervals
std::vector<uint64_t> owners;   // blocks, by interval from launch_begin on
std::deque<Log> logs;
std::unordered_map<uintptr_t, Log*> log_at;
Knowledge known;                // of the block that runs
std::vector<Flight> flights;
uint32_t first_flight = 1;
std::map<std::pair<uint64_t, const void*>, std::vector<uint32_t>> bound;  // flights that land with a barrier of the block

Learner& mine() {
  if (known.threads.empty()) known.threads.resize(S.count);
  return known.threads[S.current];
}

void new_interval(BlockState& of) {
  of.interval = ++counter;
  owners.push_back(of.block);
}

void learn(Refs& into, const Ref& what) {
  for (Ref& r : into)
    if (r.log == what.log && r.narrow == what.narrow) {
      r.length = std::max(r.length, what.length);
      return;
    }
  into.push_back(what);
}

Said snapshot() {
  auto said = std::make_shared<Snapshot>();
  int begin = S.current - lane_of(S.current);
  said->interval = S.interval, said->block = S.block, said->first = begin;
  said->clocks.assign(clocks[S.current], clocks[S.current] + warp_lanes);
  said->of_block = known.of_block;
  said->own = mine().acquired;
  ++clocks[S.current][lane_of(S.current)];  // what it writes from now on is another matter
  said_anything = true;
  return said;
}

// What two of the same block have said, as one.
Said joined(const Said& a, const Said& b) {
  if (!a || !b || a == b) return a ? a : b;
  if (a->interval != b->interval) return a->interval > b->interval ? a : b;  // a barrier lies between them
  auto both = std::make_shared<Snapshot>(*a);
  int end = std::max(a->first + a->clocks.size(), b->first + b->clocks.size());
  both->first = std::min(a->first, b->first);
  both->clocks.assign(end - both->first, 0);
  for (const Said& one : {a, b})
    for (size_t i = 0; i < one->clocks.size(); ++i) {
      uint32_t& clock = both->clocks[one->first - both->first + i];
      clock = std::max(clock, one->clocks[i]);
    }
  for (const Ref& r : b->own) learn(both->own, r);
  return both;
}

bool covers(const Snapshot& said, const Stamp& s) {
  if (s.interval != said.interval) return s.interval < said.interval;
  size_t at = static_cast<size_t>(s.thread - said.first);
  return at < said.clocks.size() && said.clocks[at] >= s.clock;
}

// Whether the log tells of it directly, to a reader of that block.
bool tells(const Ref& r, uint64_t reader, const Stamp& s, uint64_t of) {
  auto found = r.log->by_block.find(of);
  if (found == r.log->by_block.end()) return false;
  for (auto at = found->second.rbegin(); at != found->second.rend(); ++at) {
    const Entry& e = r.log->entries[*at];
    if (*at < r.length && (of == reader || !(e.narrow || r.narrow)) && covers(*e.said, s)) return true;
  }
  return false;
}

struct Step {
  Ref ref;
  uint64_t reader;
};
void follow(std::vector<Step>& to, const Snapshot& said) {
  for (const Ref& r : said.own) to.push_back({r, said.block});
  if (said.of_block)
    for (const Ref& r : *said.of_block) to.push_back({r, said.block});
}

void append(Log& log, const Said& said, bool narrow) {
  if (!said || !log.has.insert(reinterpret_cast<uintptr_t>(said.get()) + narrow).second) return;
  auto number = static_cast<uint32_t>(log.entries.size());
  log.entries.push_back({said, narrow});
  log.any_narrow |= narrow;
  log.by_block[said->block].push_back(number);
  if (!said->own.empty() || said->of_block) log.with_refs.push_back(number);
}

bool knows_all_of(const Log& log) {
  auto whole = [&](const Ref& r) { return r.log == &log && r.length == log.entries.size() && !r.narrow; };
  const Refs& own = mine().acquired;
  return std::any_of(own.begin(), own.end(), whole) ||
         (known.of_block && std::any_of(known.of_block->begin(), known.of_block->end(), whole));
}

void forget(Knowledge& k) {
  for (Learner& l : k.threads) {
    l.acquired.clear(), l.pending.clear(), l.tickets.clear();
    l.narrow = l.wide = nullptr;
  }
  k.of_block = nullptr, k.wide = nullptr;
}
}  // namespace

uint64_t block_of(uint32_t interval) {
  size_t at = interval - launch_begin;
  return at < owners.size() ? owners[at] : 0;
}

// Searches all that this thread has been told of, directly and by whoever told it.
bool learnt(const Stamp& s) {
  uint64_t of = block_of(s.interval);
  std::vector<Step> open;
  if (!known.threads.empty())
    for (const Ref& r : known.threads[S.current].acquired) open.push_back({r, S.block});
  if (known.of_block)
    for (const Ref& r : *known.of_block) open.push_back({r, S.block});
  std::map<std::pair<Log*, uint64_t>, uint32_t> visited;  // up to which length, and by whom, if that matters
  while (!open.empty()) {
    Step at = open.back();
    open.pop_back();
    Log& log = *at.ref.log;
    uint32_t& seen = visited[{&log, log.any_narrow || at.ref.narrow ? at.reader * 2 + at.ref.narrow + 1 : 0}];
    if (seen >= at.ref.length) continue;
    seen = at.ref.length;
    if (tells(at.ref, at.reader, s, of)) return true;
    for (uint32_t number : log.with_refs) {
      const Entry& e = log.entries[number];
      if (number < at.ref.length && (e.said->block == at.reader || !(e.narrow || at.ref.narrow))) follow(open, *e.said);
    }
  }
  return false;
}

bool fenced() { return !known.threads.empty() && (mine().narrow || known.wide); }

// An atomic operation, or a volatile access: it takes from the log of its address, and adds to it.
void synchronize(uintptr_t address, bool is_shared, int how) {
  if (!said_anything && !(how & releases)) return;
  uintptr_t key = is_shared ? address ^ (S.block + 1) * 0x9e3779b97f4a7c15u : address;
  auto found = log_at.find(key);
  Log* log = found == log_at.end() ? nullptr : found->second;
  bool narrow = how & of_block;
  if ((how & reads) && log) {
    Ref all{log, static_cast<uint32_t>(log->entries.size()), narrow};
    learn(mine().pending, all);
    if (how & writes) learn(mine().tickets, all);
    if (how & acquires) learn(mine().acquired, all);
  }
  if (!(how & writes)) return;
  if (!(how & reads) && log && !knows_all_of(*log)) log = nullptr;  // a store begins anew
  Said now = how & releases ? snapshot() : nullptr;
  const Learner& me = mine();
  if (!now && !me.narrow && !known.wide) {
    if (!(how & reads) && found != log_at.end()) log_at.erase(found);
    return;
  }
  if (!log) log = log_at[key] = &logs.emplace_back();
  append(*log, now ? now : me.narrow, narrow || (!now && me.narrow != me.wide));
  if (!now && !narrow && me.wide != me.narrow) append(*log, me.wide, false);
  append(*log, known.wide, narrow);
}

void fence(int how) {
#ifdef SIMT_PARALLEL
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
  if (!checking) return;
  shadow_settle();
  Learner& me = mine();
  bool narrow = how & of_block;
  if (how & acquires) {
    for (const Ref& r : me.pending) learn(me.acquired, {r.log, r.length, r.narrow || narrow});
    if (!narrow) me.pending.clear();
  }
  if (!(how & releases)) return;
  me.narrow = snapshot();
  if (!narrow) me.wide = me.narrow;
}

// ---- copies in the background ------------------------------------------------------------------------------------------

uint32_t flight() {
  Learner& me = mine();
  if (!me.filling) {
    me.filling = first_flight + static_cast<uint32_t>(flights.size());
    flights.push_back({S.interval});
  }
  return me.filling;
}

Stamp landed(const Stamp& s) {
  Stamp found = s;
  if (s.clock < first_flight) return {};
  const Flight& f = flights[s.clock - first_flight];
  found.interval = f.interval, found.clock = f.clock;
  if (f.landed) found.flags &= ~in_flight;
  return found;
}

void commit_copies() {
  if (!checking) return;
  Learner& me = mine();
  me.committed.push_back(std::exchange(me.filling, 0u));
}

void wait_for_copies(size_t but_the_last) {
  if (!checking) return;
  shadow_settle();
  auto& waiting = mine().committed;
  size_t done = waiting.size() > but_the_last ? waiting.size() - but_the_last : 0;
  for (size_t i = 0; i < done; ++i)
    if (waiting[i]) flights[waiting[i] - first_flight] = {S.interval, clocks[S.current][lane_of(S.current)], true};
  waiting.erase(waiting.begin(), waiting.begin() + done);
}

// What it publishes is known to whoever learns of a later release of this thread.
void bind_copies(const void* barrier) {
  if (!checking) return;
  shadow_settle();
  uint32_t f = std::exchange(mine().filling, 0u);
  if (!f) return;
  flights[f - first_flight] = {S.interval, clocks[S.current][lane_of(S.current)], false};
  bound[{S.block, barrier}].push_back(f);
}

void order_by_phase(const void* barrier, uint64_t phase, int how) {
  if (!checking) return;
  shadow_settle();
  auto at = reinterpret_cast<uintptr_t>(barrier);
  Zone* z = search_zone(at);
  synchronize(at + (phase + 1) * 0xd1342543de82ef95u, z && z->traits & shared, how);
}

void land_copies(const void* barrier) {
  auto found = bound.find({S.block, barrier});
  if (!checking || found == bound.end()) return;
  for (uint32_t f : found->second) flights[f - first_flight].landed = true;
  bound.erase(found);
}

// ---- called by the rest of the runtime ---------------------------------------------------------------------------------

void order_launch(bool worn) {
  if (worn) {
    counter = 0;
    memset(clocks, 0, sizeof clocks);
  }
  launch_begin = grid_begin = counter + 1;
  first_flight += static_cast<uint32_t>(flights.size());
  owners.clear(), log_at.clear(), logs.clear(), flights.clear(), bound.clear();
  known = {};
  said_anything = false;
}

static void begin_zones() {
  for (int i = 0; i < zone_count; ++i) zones[i].since = zones[i].traits & shared ? S.block_begin : launch_begin;
}

void order_block() {
  new_interval(S);
  S.block_begin = S.mine_from = S.interval;
  begin_zones();
  if (!known.threads.empty()) known = {};
  // What lanes knew of those before them must not count: each begins behind it.
  for (int i = 0; i < S.count; ++i) ++clocks[i][lane_of(i)];
}

// All threads of the block meet: what one has learnt all have, and a fence of one before is as good as of any behind it. Of
// what one has read of other blocks without a fence nobody learns, unless it has drawn a ticket (docs/memory-order.md).
void order_barrier() {
  if (!known.threads.empty()) {
    Refs all;
    Said wide;
    if (known.of_block) all = *known.of_block;
    for (Learner& l : known.threads) {
      for (const Refs* refs : {&l.acquired, &l.tickets})
        for (const Ref& r : *refs) learn(all, r);
      l.acquired.clear(), l.tickets.clear();
      if (l.wide && l.wide->interval == S.interval) wide = joined(wide, l.wide);
    }
    if (!all.empty()) known.of_block = std::make_shared<const Refs>(std::move(all));
    if (wide) known.wide = wide;
  }
  new_interval(S);
}

static void join_lanes(int warp, uint32_t mask) {
  Learner* lanes = known.threads.data() + warp * warp_lanes;
  Learner all;
  for (uint32_t left = mask; left; left &= left - 1) {
    Learner& l = lanes[__builtin_ctz(left)];
    for (const Ref& r : l.acquired) learn(all.acquired, r);
    all.narrow = joined(all.narrow, l.narrow), all.wide = joined(all.wide, l.wide);
  }
  if (all.acquired.empty() && !all.narrow) return;
  for (uint32_t left = mask; left; left &= left - 1) {
    Learner& l = lanes[__builtin_ctz(left)];
    l.acquired = all.acquired, l.narrow = all.narrow, l.wide = all.wide;
  }
}

__attribute__((target_clones("avx2", "default"))) void shadow_warp(int warp, uint32_t mask) {
  if (!known.threads.empty()) join_lanes(warp, mask);
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

void shadow_grid_barrier() {
  grid_begin = counter + 1;
  forget(known);
  new_interval(S);
}

void shadow_grid_passed(BlockState& state, ShadowOfBlock& shadow) {
  forget(shadow.knowledge);
  new_interval(state);
}

void shadow_park(ShadowOfBlock& to) {
  to.clocks.assign(clocks[0], clocks[0] + S.count * warp_lanes);
  to.knowledge = std::exchange(known, {});
  for (int i = 0; i < zone_count; ++i) {
    const Zone& z = zones[i];
    size_t cells = z.traits & shared ? (z.end - z.begin + (size_t{1} << z.shift) - 1) >> z.shift : 0;
    to.cells.emplace_back(z.cells, z.cells + cells);
    to.shifts.push_back(z.shift);
  }
}

void shadow_resume(ShadowOfBlock& from) {
  std::copy(from.clocks.begin(), from.clocks.end(), clocks[0]);
  known = std::move(from.knowledge);
  S.mine_from = counter + 1;
  begin_zones();
  for (int i = 0; i < zone_count; ++i) {
    Zone& z = zones[i];
    if (!(z.traits & shared)) continue;
    int now = std::exchange(z.shift, static_cast<uint8_t>(from.shifts[i]));
    std::copy(from.cells[i].begin(), from.cells[i].end(), z.cells);
    if (now < z.shift) refine(z, now);
  }
}
}  // namespace simt
