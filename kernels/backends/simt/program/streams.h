// Streams and events, and who has waited for which of them (streams.cpp).
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <time.h>

#include <map>

namespace simt {
constexpr uintptr_t not_blocking = 1;         // of a stream's number: it and the default stream do not wait for one another
using Clock = std::map<uintptr_t, uint32_t>;  // by number of stream: the last epoch that was waited for

uintptr_t number_of_stream(bool blocking);
void begin_work(cudaStream_t s);  // a launch or a copy
// What marks bytes that the current work has written; marks begin with `first`, and the one before it is no mark.
uint8_t mark_of_work(uint8_t first);
bool waited_for(uint8_t mark, uint8_t first);  // by the host
void settle_marks();                           // memory.cpp: no byte has a mark of work that was waited for
void forget_work();                            // all of it was waited for
void host_waits(cudaStream_t s);
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
