// What the host knows of streams. Everything is done at once, in the order of the calls; who has waited for what is told
// by vector clocks: of each stream, how far whoever waited for it has waited for the others.
//
// The work of a stream counts in epochs. One ends when somebody learns how far the stream is.
#include "streams.h"

#include <algorithm>
#include <map>
#include <vector>

#include "watch.h"

namespace simt {
namespace {
using Number = uintptr_t;
constexpr Number legacy = 0, per_thread = 2;  // as the handles of the default streams
std::map<Number, Clock>& clocks_of_streams() {
  static auto& made = *new std::map<Number, Clock>;  // never destroyed
  return made;
}
struct Work {
  Number stream;
  uint32_t epoch;
};
std::vector<Work> pending;  // by which the bytes of visible memory are marked
Clock host;
Number current;
bool marked;  // the current operation has its entry in `pending`
uint8_t mark;

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
  marked &= current != n;
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
bool has_waited(const Work& w) {
  auto known = host.find(w.stream);
  return known != host.end() && known->second >= w.epoch;
}
}  // namespace

uintptr_t number_of_stream(bool blocking) {
  static uintptr_t last = per_thread;
  return last = ((last >> 1) + 2) << 1 | (blocking ? 0 : not_blocking);
}

void begin_work(cudaStream_t s) {
  current = number_of(s);
  order_default(current);
  marked = false;
}

uint8_t mark_of_work(uint8_t first) {
  if (marked) return mark;
  marked = true;
  uint32_t epoch = clocks_of_streams()[current][current];
  for (size_t i = 0; i < pending.size(); ++i)
    if (pending[i].stream == current && pending[i].epoch == epoch) return mark = static_cast<uint8_t>(first + i);
  size_t at = pending.size();
  if (at == 255u - first) {
    settle_marks();
    at = static_cast<size_t>(std::find_if(pending.begin(), pending.end(), has_waited) - pending.begin());
    if (at == pending.size()) return mark = first - 1;  // too many to know them all
    pending[at] = {current, epoch};
  } else pending.push_back({current, epoch});
  return mark = static_cast<uint8_t>(first + at);
}

bool waited_for(uint8_t marked_as, uint8_t first) { return has_waited(pending[marked_as - first]); }

void forget_work() { pending.clear(), marked = false; }

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
