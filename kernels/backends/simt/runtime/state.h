// The state of the one launch that is running, and what the parts of the runtime offer one another.
#pragma once
#include "../runtime.h"

#include <cuda_runtime.h>

#include <atomic>

// The built-in variables, which kernels see as constants.
extern SIMT_API SIMT_EACH uint3 thread_index asm("threadIdx"), block_index asm("blockIdx");
extern SIMT_API dim3 block_extent asm("blockDim"), grid_extent asm("gridDim");

namespace simt {
extern thread_local unsigned long long bounds_told;  // by a kernel that is called to be launched
constexpr int max_threads = 1024, warp_lanes = 32, max_warps = max_threads / warp_lanes;

// What a switch needs: two threads share a line of the cache.
struct alignas(32) Thread {
  void* stack_pointer;  // where it left off
  uint3 index;
  int16_t stack;        // which of the pool it runs on
};
static_assert(sizeof(Thread) == 32);

// What a thread wants of its warp, and what it got.
struct Request {
  Op op;
  uint32_t mask, which, width;
  uint64_t value, result;
  Place at;
};

// Lanes as bits.
struct Warp {
  uint32_t all, fresh, ready, at_barrier, at_warp, converging, aside, at_grid, ended;
};

// Whose turn it is among the threads of a block (schedule.cpp).
struct Turns {
  uint64_t random_state;
  int rank_of[max_warps], warp_at[max_warps];  // the order of warps
  int first_lane[max_warps];                   // the lane of each warp that comes first
  uint32_t ready_ranks;                        // ranks of warps of which a lane could go on
  int cursor;                                  // rank whose turn it is
  uint32_t batch;                              // its lanes that go on before the next rank's turn
};

// The threads of a block that nobody has begun, in the order of their turns. They run one after the other on one stack, and
// nothing is booked until one of them waits: a thread that meets no other costs little more than a call.
struct Row {
  bool goes_on;
  bool hopeless;      // threads of this launch wait early
  Order order;        // of these threads
  int count;
  uint16_t threads[max_threads];
};

// What a block has of its own, besides its threads: put aside while another block has its turn.
struct BlockState {
  uint64_t block;
  int alive;
  // barrier
  int arrived, said_yes, vote_result;
  int passed;   // barriers of this block, so far
  int skipper;  // a thread that has ended after the first of them; -1: none
  bool vote_all;
  Place barrier_at;
  int at_grid;  // threads that wait for all blocks
  Place grid_at;
  int idle;     // times that only those went on who wait for another thread
  Turns turns;
  // checker: intervals between barriers are numbered over all blocks and all launches
  uint32_t interval, block_begin;
  uint32_t mine_from;  // intervals from here on are this block's
};

struct State : BlockState {
  Launch* launch;
  void (*kernel)(const void*);
  const void* arguments;
  alignas(64) Thread threads[max_threads];
  Request requests[max_threads];
  Warp warps[max_warps];
  int count, warp_count;
  uint64_t switches;
  Row row;
  void* main_stack_pointer;
  bool active, over;
  bool of_crew;  // one of several that run a launch
  bool others;   // blocks that could have a turn
  int current;
  int polls, steps;  // of this thread, since its turn began: who reads again and again waits for another
  uint64_t blocks;  // of the grid, as far as they are run
  // the library's block of shared memory
  char* shared;
  size_t shared_bytes;
};
extern SIMT_EACH State S;

// All that run blocks of a launch.
struct Crew {
  std::atomic<uint64_t> begun;   // blocks
  std::atomic<bool> stops;       // one of them has met a fault
  uint64_t size;
};
extern Crew crew;

inline void set_current(int thread) {
  S.current = thread;
  S.polls = S.steps = 0;
  thread_index = S.threads[thread].index;
}

inline int lane_of(int thread) { return thread & (warp_lanes - 1); }
inline int warp_of(int thread) { return static_cast<int>(static_cast<unsigned>(thread) / warp_lanes); }
inline uint32_t bit(int lane) { return 1u << lane; }

// fibers.cpp
// Zeroed memory, taken as it is touched; ends the process if there is none. Shared memory is under no limit of the process.
void* reserve(size_t bytes, const char* purpose, bool shared = false);
void switch_to(int thread, void** leaving);  // saves where we are in *leaving
void leave();                                // gives the CPU to whoever is next; returns when it is this thread's turn
[[noreturn]] void end_thread();              // who runs goes no further
void run_threads();                          // from the launcher: until nobody can go on
void begin_stacks();                         // of a launch
bool have_stacks(int threads);               // whether there are so many more
bool is_stack(uintptr_t address);
bool is_stack_guard(uintptr_t address);

// schedule.cpp
void schedule_block();
void schedule_interval();  // a barrier was passed
void wake(int warp, uint32_t lanes);
int next_thread();         // -1: nobody can go on
void run_row();            // until all have ended, or one that had to wait
void leave_row();
// Before a thread waits, or others are looked at.
inline void settle_row() {
  if (S.row.goes_on) leave_row();
}
uint64_t random_below(uint64_t n);
bool last_goes_on();       // whether the lane that completes a warp operation goes on at once

// block.cpp
void thread_ended();
void stuck();
uint64_t random_of_launch(uint64_t n);  // below n

// residency.cpp: blocks that have begun, and wait while others have their turn
constexpr uint64_t processors = 8;                              // of the emulated device
uint64_t blocks_at_once(uint64_t threads, uint64_t shared);     // on one of them
void run_blocks();
void begin_block(uint64_t number);  // block.cpp
void forget_blocks();
void share_turn();     // may give another block its turn: before an access that others may see
bool under_way(uint32_t interval);  // of a block that is put aside, and has passed no barrier since
void check_grid(Place at);  // fails where blocks cannot meet
void block_at_grid();  // all threads of the block wait for the others

// warp.cpp
extern int undefined_line;          // where undefined values are other ones; 0: nowhere, -1: everywhere
void complete_without(int thread);  // it has ended: others may have waited for it
void disagree(int thread);          // it waits, and nobody can go on: ends the launch if another's mask is to blame
void converge_now(int warp);
// A lane waits: perhaps nobody is left for whom __activemask() should wait.
inline void converge(int warp) {
  if (S.warps[warp].converging && !S.warps[warp].ready) converge_now(warp);
}

// What a program has in place of a launch that ends with its first fault (program/*.cpp); null: there is none.
constexpr int a_write = 1, reads_too = 2, by_host = 4, polls = 8, strongly = 16, publishes = 32, constructs = 64;  // how it accesses; polls: a volatile read; publishes: behind a fence
struct Watcher {
  void (*found)(const Fault& fault, bool harmless);  // goes on behind it
  bool (*judged)(uintptr_t at, size_t bytes, int how, uintptr_t pc);  // whether it has said all there is to say of an access
  void (*refused)(const char* what, Place at);  // what is not emulated: ends the program
  bool (*is_variable)(const char* name);  // of the device: behind its end lies nothing that matters
};
extern const Watcher* watcher;
extern SIMT_EACH const void* acting_for;  // where in the kernel, while the runtime accesses memory for it

// fault.cpp
void guard_begin();
void guard_end();
void guard_process(bool begins);  // the signals of all threads; guard_begin does so unless the launch has a crew
void set_place(Fault& fault, Place at);
void set_file(char (&to)[256], const char* file);
void tell(Fault& fault, Trouble trouble, Place at, const char* text);  // block.cpp
void warn(const Fault& fault);  // the first one is kept
void warn(Trouble trouble, int thread, Place at, const char* text);  // block.cpp
uint64_t relative(const void* code);
void find_library(const void* anchor);
uintptr_t library_start();
bool in_library(uintptr_t address);
bool in_runtime(uintptr_t address);

// shadow.cpp and happens.cpp
extern bool checking;
void shadow_launch();
void shadow_end();
void shadow_block();
void shadow_block_end();
void shadow_barrier();
void order_barrier();
void shadow_warp(int warp, uint32_t mask);
void shadow_settle();
void accessed(const void* at, size_t bytes, int how, const void* caller);  // plain or volatile
void forget_named_barriers();
}  // namespace simt
