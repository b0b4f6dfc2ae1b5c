// What the host knows of streams. Everything is done at once, in the order of the calls; who has waited for what is told
// by vector clocks: of each stream, how far whoever waited for it has waited for the others.
//
// The work of a stream counts in epochs. One ends when somebody learns how far the stream is. Of each byte it is known which
// work wrote it last, and which read it since.
#include "streams.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

namespace simt {
namespace {
using Number = uintptr_t;
constexpr Number legacy = 0, per_thread = 2;  // as the handles of the default streams
std::map<Number, Clock>& clocks_of_streams() {
  static auto& made = *new std::map<Number, Clock>;  // never destroyed
  return made;
}
using Mark = uint16_t;  // of a byte: the number of some work, from 1 on, and how it accessed it
constexpr Mark number_bits = 0x3fff, is_strong = 0x8000, is_published = 0x4000;
auto& works = *new std::vector<Work>;
Mark *writers, *readers;
Clock host;
Work current;
bool marked;  // the current work is the last of `works`

Number number_of(cudaStream_t s) {
  auto handle = reinterpret_cast<uintptr_t>(s);
  return handle == 1 ? legacy : handle <= 2 ? handle : s->number;
}
void join(Clock& to, const Clock& from) {
  for (auto [stream, epoch] : from) to[stream] = std::max(to[stream], epoch);
}
// How far a stream is: whoever learns of it ends its epoch.
Clock now_of(Number n) {
  auto& all = clocks_of_streams();
  Clock found = all[n];
  ++all[n][n];
  marked &= current.stream != n;
  return found;
}
// The legacy default stream waits for all that block, and they for it.
void order_default(Number n) {
  auto& all = clocks_of_streams();
  if (n & not_blocking) return;
  if (n != legacy) return join(all[n], now_of(legacy));
  std::vector<Number> others;
  for (auto& [other, clock] : all)
    if (other != legacy && !(other & not_blocking)) others.push_back(other);
  for (Number other : others) join(all[legacy], now_of(other));
}
bool knows(const Clock& clock, const Work& w) {
  auto known = clock.find(w.stream);
  return known != clock.end() && known->second >= w.epoch;
}
void forget_works() {
  for (Mark* marks : {writers, readers})
    if (marks) madvise(marks, most_marks * sizeof(Mark), MADV_DONTNEED);
  works.clear(), marked = false;
}
Mark mark_of_work() {
  if (marked) return static_cast<Mark>(works.size());
  if (works.size() == number_bits) forget_works();  // too many to know them all
  for (Mark** marks : {&writers, &readers})
    if (!*marks) *marks = static_cast<Mark*>(reserve(most_marks * sizeof(Mark), "what streams access"));
  current.epoch = clocks_of_streams()[current.stream][current.stream];
  works.push_back(current);
  marked = true;
  return static_cast<Mark>(works.size());
}
const Work& work_of(Mark m) { return works[(m & number_bits) - 1]; }

// Atomic operations and volatile accesses do not race, and who reads what was published behind a fence waits for it.
bool is_ordered(Mark seen, int how) {
  if (!seen || work_of(seen).stream == current.stream) return true;
  Clock& mine = clocks_of_streams()[current.stream];
  if (how & strongly && seen & is_published && (how & reads_too || !(how & a_write))) join(mine, now_of(work_of(seen).stream));
  return (how & strongly && seen & is_strong) || knows(mine, work_of(seen));
}
}  // namespace
bool many_streams;

uintptr_t number_of_stream(bool blocking) {
  static uintptr_t last = per_thread;
  many_streams = true;
  return last = ((last >> 1) + 2) << 1 | (blocking ? 0 : not_blocking);
}

void begin_work(cudaStream_t s, const char* name, const Calls& calls) {
  Number n = number_of(s);
  many_streams |= n != legacy;
  order_default(n);
  join(clocks_of_streams()[n], host);
  current = {n, 0, name, calls};
  marked = false;
}

Conflict work_accesses(size_t slot, size_t bytes, int how) {
  Mark me = mark_of_work(), now = me | (how & strongly ? is_strong : 0) | (how & publishes ? is_published : 0), wrote = now, read = now;
  Conflict found;
  for (size_t i = slot; i < slot + bytes; ++i) {
    if (writers[i] != wrote && !is_ordered(wrote = writers[i], how)) found = {&work_of(wrote), true};
    if (how & a_write && readers[i] != read && !is_ordered(read = readers[i], how)) found = {&work_of(read), false};
  }
  if (how & a_write) std::fill_n(writers + slot, bytes, now);
  std::fill_n(readers + slot, bytes, how & a_write ? Mark{0} : now);
  return found;
}

Conflict host_accesses(size_t slot, size_t bytes, int how) {
  for (size_t i = slot; writers && i < slot + bytes; ++i) {
    if (writers[i] && !knows(host, work_of(writers[i]))) return {&work_of(writers[i]), true};
    if (how & a_write && readers[i] && !knows(host, work_of(readers[i]))) return {&work_of(readers[i]), false};
  }
  return {};
}

void host_waits_for_all() {
  std::vector<Number> all;
  for (auto& [number, clock] : clocks_of_streams()) all.push_back(number);
  for (Number n : all) join(host, now_of(n));
  if (works.size() > number_bits / 2) forget_works();
}

void host_waits(cudaStream_t s) {
  order_default(number_of(s));
  join(host, now_of(number_of(s)));
}
void host_knows(const Clock& clock) { join(host, clock); }
void stream_knows(cudaStream_t s, const Clock& clock) { join(clocks_of_streams()[number_of(s)], clock); }
Clock recorded_in(cudaStream_t s) {
  order_default(number_of(s));
  return now_of(number_of(s));
}
}  // namespace simt
