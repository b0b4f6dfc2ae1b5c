// A launch in fast mode: each processor takes one block after the other. They wait for work between launches, and who comes
// when all blocks are begun is not waited for.
#include "watch.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

namespace simt {
namespace {
struct Work {
  Launch* launch;
  void (*kernel)(const void*);
  const void* arguments;
};
// Never destroyed: at the end of the program they still wait.
auto& lock = *new std::mutex;
auto& called = *new std::condition_variable;
auto& done = *new std::condition_variable;
Work work;
bool is_open;
uint64_t number;         // of the launch
uint64_t there, busy;    // of the others

uint64_t processors_here() {
  constexpr int most = 16;  // each has stacks with guards, and a process may have so many areas of memory
  cpu_set_t set;
  const char* said = getenv("KERNEL_ASSAY_JOBS");
  int found = said && atoi(said) ? atoi(said) : sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  return static_cast<uint64_t>(std::min(found, most));
}

void run_blocks_of(Launch& mine, const void* anchor) {
  S.of_crew = true;
  launch(&mine, work.kernel, work.arguments, anchor);
  S.of_crew = false;
}

[[noreturn]] void wait_for_work() {
  launching = true;
  std::unique_lock<std::mutex> locked(lock);
  for (uint64_t last = 0;;) {
    called.wait(locked, [&] { return is_open && number != last; });
    last = number, ++busy;
    Launch mine = *work.launch;
    locked.unlock();
    // By the kernel's code, for what is thread-local lies elsewhere in each thread.
    run_blocks_of(mine, reinterpret_cast<const void*>(work.kernel));
    locked.lock();
    if (!work.launch->fault.trouble) work.launch->fault = mine.fault;
    if (!--busy) done.notify_one();
  }
}

// The program's own signals are for its own threads.
void come(uint64_t wanted) {
  sigset_t all, before;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (; there < wanted; ++there) std::thread(wait_for_work).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
}  // namespace

void launch_on_all(Launch& how, void (*kernel)(const void*), const void* arguments, const void* anchor) {
  static const uint64_t most = is_fast ? processors_here() : 1;
  // Blocks that may all meet wait for one another, and take turns on one processor.
  crew.size = how.is_plain ? std::min(most, uint64_t{how.grid[0]} * how.grid[1] * how.grid[2]) : 1;
  if (crew.size == 1) return void(launch(&how, kernel, arguments, anchor));
  come(crew.size - 1);
  crew.begun = 0, crew.stops = false;
  guard_process(true);
  Launch mine = how;
  {
    std::lock_guard<std::mutex> locked(lock);
    work = {&how, kernel, arguments};
    is_open = true, ++number;
  }
  called.notify_all();
  run_blocks_of(mine, anchor);
  std::unique_lock<std::mutex> locked(lock);
  is_open = false;
  done.wait(locked, [] { return !busy; });
  if (mine.fault.trouble) how.fault = mine.fault;
  guard_process(false);
}
}  // namespace simt
