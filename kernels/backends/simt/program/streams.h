// Streams and events, and who has waited for which of them (streams.cpp).
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <time.h>

#include <map>
#include <string>

#include "watch.h"

namespace simt {
constexpr size_t most_marks = size_t{1} << 39;  // of bytes, of which it is known who accessed them
constexpr uintptr_t not_blocking = 1;         // of a stream's number: it and the default stream do not wait for one another
using Clock = std::map<uintptr_t, uint32_t>;  // by number of stream: the last epoch that was waited for

// A launch, a copy or a set, and whoever called for it.
struct Work {
  uintptr_t stream;
  uint32_t epoch;
  std::string name;
  Calls calls;
};
struct Conflict {
  const Work* with = nullptr;  // null: there is none
  bool it_writes = false;
};
extern bool many_streams;  // the program has others than the default one: of all memory it is known which work accessed it last

uintptr_t number_of_stream(bool blocking);
bool is_stream(cudaStream_t s);  // device_api.cpp
void begin_work(cudaStream_t s, const char* name, const Calls& calls);
// Notes an access of the current work to bytes from `slot` on, and tells what it races with.
Conflict work_accesses(size_t slot, size_t bytes, int how);
Conflict host_accesses(size_t slot, size_t bytes, int how);  // work that the host has not waited for
void host_waits(cudaStream_t s);
void host_waits_for_all();
void host_knows(const Clock& clock);
void stream_knows(cudaStream_t s, const Clock& clock);
Clock recorded_in(cudaStream_t s);  // by an event
}  // namespace simt

struct CUstream_st {
  unsigned flags;
  int priority;
  uintptr_t number;
};
struct CUevent_st {
  unsigned flags;
  bool recorded;
  timespec at;
  simt::Clock knows;
};
