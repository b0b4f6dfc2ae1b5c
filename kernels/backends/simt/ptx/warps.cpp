// Where threads meet: the operations of a warp and the barriers of a block, by the same runtime as CUDA's functions.
#include "ptx.h"

#include <stdio.h>

#include <map>
#include <utility>

namespace simt {
namespace {
// A barrier of some of the block's threads.
struct Named {
  int arrived;
  bool passing;  // some of those did not wait
  uint64_t generation;
  int yes, came, said_yes;  // what the votes so far are; of the generation before, how many there were
};
SIMT_EACH_MADE std::map<std::pair<uint64_t, int>, Named> named_barriers;  // by block and number
constexpr int patience = 20000;  // turns in which nobody else came: the barrier's others never will
}  // namespace

void forget_named_barriers() { named_barriers.clear(); }

// As at __syncthreads(), those that have ended are not waited for where the whole block meets.
static bool all_there(const Named& n, int count) {
  return n.arrived >= count || (count >= S.count && !n.passing && n.arrived >= S.alive);
}
// Those who waited go on beside who came last: it may ask who is active.
static void next_generation(Named& n, int count) {
  if (checking && count >= S.count && !n.passing) shadow_barrier();
  n = {0, false, n.generation + 1, 0, n.arrived, n.yes};
  for (int w = 0; w < S.warp_count; ++w) wake(w, std::exchange(S.warps[w].aside, 0u));
}
static uintptr_t key_of(const Named& n, uint64_t generation) { return reinterpret_cast<uintptr_t>(&n) ^ (generation << 48); }

static void await(Named& n, uint64_t mine, int count, Place at, const char* what, int scope) {
  for (int turns = 0; n.generation == mine; ++turns) {
    if (turns > patience) {
      char text[96];
      snprintf(text, sizeof text, "%d of %d %s", n.arrived, count, what);
      fail(Trouble::deadlock, at, text);
    }
    step_aside();
    if (n.generation == mine && all_there(n, count)) next_generation(n, count);
  }
  if (checking) synchronize(key_of(n, mine), false, reads | acquires | scope);
}

// What its threads did before happens before what they do behind it.
static int meet(int number, int count, bool waits, Place at, Vote vote = Vote::none, int said = 0) {
  settle_row();
  Named& n = named_barriers[{S.block, number}];
  uint64_t mine = n.generation;
  if (checking) shadow_settle(), synchronize(key_of(n, mine), false, reads | writes | releases | of_block);
  ++n.arrived, n.yes += said, n.passing |= !waits;
  if (all_there(n, count)) next_generation(n, count);
  if (!waits) return 0;
  char what[48];
  snprintf(what, sizeof what, "threads have come to barrier %d", number);
  await(n, mine, count, at, what, of_block);
  return vote == Vote::all ? n.said_yes == n.came : vote == Vote::any ? n.said_yes > 0 : n.said_yes;
}

// As in NVIDIA's header the block meets on either side, and its first thread does the rest.
static Named& of_grid() { return named_barriers[{~uint64_t{0}, 0}]; }
uint64_t grid_arrive(Place at) {
  check_grid(at);
  barrier(Vote::none, 0, at);
  Named& n = of_grid();
  uint64_t mine = n.generation;
  if (S.current) return mine;
  if (checking) shadow_settle(), synchronize(key_of(n, mine), false, reads | writes | releases);
  ++n.arrived, n.passing = true;
  if (all_there(n, static_cast<int>(S.blocks))) next_generation(n, 0);
  return mine;
}
void grid_wait(uint64_t phase, Place at) {
  if (!S.current) await(of_grid(), phase, static_cast<int>(S.blocks), at, "blocks have come to the barrier of the grid", 0);
  barrier(Vote::none, 0, at);
}

namespace ptx {
namespace {
uint32_t mask_of(const Machine& m, const Operand& o) { return static_cast<uint32_t>(m.get(o)); }

void shuffle(Machine& m, const Instruction& i) {
  auto which = static_cast<uint32_t>(m.get(i.operands[2])), c = static_cast<uint32_t>(m.get(i.operands[3]));
  auto op = static_cast<Op>(i.detail);
  uint32_t width = 32 - (c >> 8 & 31), wanted = op == Op::shuffle_up ? 0 : 31;
  if ((c & 31) != wanted) unsupported(i.text + " with a clamp of its own", m.at);
  m.put(i.operands[0], warp(op, mask_of(m, i.operands[4]), m.get(i.operands[1]) & 0xffffffffu, which, width, m.at), Type::b32);
  if (i.operands[0].parts.empty()) return;
  int lane = lane_of(S.current), begin = lane & ~static_cast<int>(width - 1), by = which & 31, from = lane;
  if (op == Op::shuffle_up) from = lane - by;
  if (op == Op::shuffle_down) from = lane + by;
  if (op == Op::shuffle_xor) from = lane ^ by;
  m.put(i.operands[0].parts[0], from >= begin && from < begin + static_cast<int>(width), Type::pred);
}
void vote(Machine& m, const Instruction& i) {
  uint64_t said = m.get(i.operands[1]) & 1;
  m.put(i.operands[0], warp(static_cast<Op>(i.detail), mask_of(m, i.operands[2]), said, 0, 32, m.at), Type::b32);
}
void match(Machine& m, const Instruction& i) {
  uint64_t value = m.get(i.operands[1]) & (bytes_of(i.type) == 8 ? ~uint64_t{0} : 0xffffffffu);
  uint64_t found = warp(static_cast<Op>(i.detail), mask_of(m, i.operands[2]), value, 0, 32, m.at);
  m.put(i.operands[0], found, Type::b32);
  if (!i.operands[0].parts.empty()) m.put(i.operands[0].parts[0], found != 0, Type::pred);
}
void reduce(Machine& m, const Instruction& i) {
  auto value = static_cast<uint32_t>(m.get(i.operands[1]));
  uint64_t wide = is_signed(i.type) ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(value))) : value;
  m.put(i.operands[0], warp(static_cast<Op>(i.detail), mask_of(m, i.operands[2]), wide, 0, 32, m.at), Type::b32);
}
void active(Machine& m, const Instruction& i) { m.put(i.operands[0], active_lanes(m.at), Type::b32); }
void meet_warp(Machine& m, const Instruction& i) { warp(Op::sync, mask_of(m, i.operands[0]), 0, 0, 32, m.at); }

// barrier, threads: the second may be left out, and is null then.
int come_together(const Machine& m, const Instruction& i, const Operand& barrier_number, const Operand* threads, Vote vote, int said) {
  constexpr uint64_t barriers = 16;
  uint64_t number = m.get(barrier_number), count = threads ? m.get(*threads) : S.count;
  if (number >= barriers) unsupported(i.text + " of barrier " + std::to_string(number) + " (a block has 16)", m.at);
  if (threads && (!count || count % warp_lanes))
    unsupported(i.text + " of " + std::to_string(count) + " threads (no multiple of 32)", m.at);
  bool waits = !i.has("arrive"), is_whole = count >= static_cast<uint64_t>(S.count);
  if (!number && is_whole && waits) return barrier(vote, said, m.at);  // __syncthreads()
  return meet(static_cast<int>(number), static_cast<int>(count), waits, m.at, vote, said);
}
void meet_block(Machine& m, const Instruction& i) {
  come_together(m, i, i.operands[0], i.operands.size() > 1 ? &i.operands[1] : nullptr, Vote::none, 0);
}
void meet_and_vote(Machine& m, const Instruction& i) {
  const auto& o = i.operands;
  m.put(o[0], come_together(m, i, o[1], o.size() > 3 ? &o[2] : nullptr, static_cast<Vote>(i.detail), m.get(o.back()) & 1), Type::b32);
}

struct Named {
  const char* word;
  Op op;
};
Handler with(Instruction& i, std::initializer_list<Named> known, Handler handler, size_t operands) {
  if (!i.has("sync") || i.operands.size() < operands) return nullptr;
  for (const Named& n : known)
    if (i.has(n.word)) return i.detail = static_cast<int>(n.op), handler;
  return nullptr;
}
Handler barrier_handler(Instruction& i) {
  if (i.has("cluster") || i.operands.empty()) return nullptr;
  if (i.has("warp")) return meet_warp;
  if (i.has("sync")) return meet_block;
  if (i.has("arrive")) return i.operands.size() > 1 ? meet_block : nullptr;
  if (!i.has("red") || i.operands.size() < 3) return nullptr;
  i.detail = static_cast<int>(i.has("popc") ? Vote::count : i.has("and") ? Vote::all : Vote::any);
  return meet_and_vote;
}
}  // namespace

Handler warp_handler(Instruction& i) {
  if (i.name == "shfl")
    return with(i, {{"idx", Op::shuffle_index}, {"up", Op::shuffle_up}, {"down", Op::shuffle_down}, {"bfly", Op::shuffle_xor}}, shuffle, 5);
  if (i.name == "vote")
    return with(i, {{"ballot", Op::ballot}, {"any", Op::any}, {"all", Op::all}, {"uni", Op::uniform}}, vote, 3);
  if (i.name == "match") return with(i, {{"any", Op::match_any}, {"all", Op::match_all}}, match, 3);
  if (i.name == "redux" && bytes_of(i.type) == 4 && !is_real(i.type))
    return with(i, {{"add", Op::add}, {"min", Op::minimum}, {"max", Op::maximum}, {"and", Op::bit_and}, {"or", Op::bit_or}, {"xor", Op::bit_xor}}, reduce, 3);
  if (i.name == "activemask") return i.operands.size() == 1 ? active : nullptr;
  return i.name == "bar" || i.name == "barrier" ? barrier_handler(i) : nullptr;
}
}  // namespace ptx
}  // namespace simt
