// What a kernel and the runtime know of each other. The runtime (runtime/*.cpp) is one library a process; every compiled
// kernel is a library of its own that calls it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define SIMT_API __attribute__((visibility("default")))
// The emulator's own reads and writes are no accesses of the kernel.
#define SIMT_UNSEEN __attribute__((no_sanitize("thread,alignment")))
#define SIMT_INLINE inline __attribute__((always_inline))

// What each processor has of its own that runs blocks: several do in a program in fast mode (program/crew.cpp).
#ifdef SIMT_PARALLEL
#define SIMT_EACH __thread __attribute__((tls_model("initial-exec")))
#define SIMT_EACH_MADE thread_local
#else
#define SIMT_EACH
#define SIMT_EACH_MADE
#endif

namespace simt {

// A line of the kernel's source: a function that takes `Place at = here()` is told where it was called.
struct Place {
  const char* file;
  int line;
  int number = 0;  // of a barrier, where a line has several
};
constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
constexpr Place numbered(int number, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line, number}; }

// What a launch can be ended for; kernels/backends/simt/faults.py has the same list.
enum class Trouble : int32_t {
  none,
  memory_fault,        // an address that nobody may touch
  stack_overflow,
  arithmetic,          // division of integers by zero
  trap,                // __trap(), or assert
  misaligned,
  divergent_barrier,
  deadlock,
  bad_mask,            // lanes of a warp disagree about an operation
  out_of_bounds,
  race,
  uninitialized,
  read_only,
  bad_index,           // of an array whose accesses are not judged: a local one
  undefined_lane,      // a warning: a shuffle reads from a lane that takes no part in it
  skipped_barrier,     // a warning: a thread that met the others at a barrier has ended before their next one
  unsupported,         // an instruction of PTX that is not emulated
  ended_lane,          // a warning: a lane that an operation of the warp names has ended
  launch_bounds,       // more threads in a block than the kernel has them for
  undefined_result,    // a warning: what a function gives only one of the threads that call it
};

// What went wrong, where, and who else was involved. Numbers only: words are made in kernels/backends/simt/faults.py.
struct Fault {
  int32_t trouble;
  int32_t region;          // whose memory, as numbered in Launch.regions; -1: nobody's
  int64_t offset;          // bytes from its start
  int32_t bytes;           // of the access; of bad_index: how many elements there are
  int32_t writes;          // 1: the access writes
  int32_t thread;          // in its block, x fastest; -1: nobody in particular
  int32_t other;           // the other thread of a race; -1: none
  int32_t other_writes;
  uint32_t block;          // in the grid, x fastest
  uint32_t other_block;
  int32_t line;            // of a collective operation; 0: see pc
  uint64_t pc;             // return address of the access, less the library's base; 0: see line
  uint64_t other_pc;
  char file[256];
  char text[256];
};

// In place of a race's text: it is no fault.
constexpr const char* swap_follows = "compare-and-swap";

// Memory that the kernel may touch, for the checker.
struct Region {
  uintptr_t begin;
  uint64_t bytes;
  int32_t traits;
};
enum Traits : int32_t { read_only = 1, undefined = 2, shared = 4 };

// Where the kernel's source indexes an array by its name; kernels/backends/simt/subscripts.py has the same.
struct Subscript {
  const char* file;  // with folders only where several have that name
  const char* name;
  int32_t line, column, closing_line, closing_column;  // of its brackets
  int32_t further;                                     // subscripts that follow
};

// One launch; kernels/backends/simt/emulator.py has the same.
struct Launch {
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared, static_shared;  // bytes; the latter of the greediest kernel
  uint32_t order;           // an Order
  uint64_t seed;
  const Region* regions;    // arguments; those of shared memory follow them
  uint32_t region_count;
  uint32_t shared_count;    // static shared arrays of the library: offsets within its block of shared memory
  const Region* shared_arrays;
  const Region* variables;  // __device__ and __constant__ ones, by offset from where the library lies
  uint32_t variable_count;
  const Subscript* subscripts;  // of the library, in check mode
  uint32_t subscript_count;
  uint32_t warnings;        // out: unordered accesses that changed nothing, undefined values, skipped barriers
  uint32_t check;           // 1: the library was compiled for it, judge every access
  uint32_t ends;            // so many blocks from either end of the grid, in this order, and no others; 0: all
  uint32_t undefined_byte;  // of which undefined values are made
  uint32_t shares;          // 1: blocks lose their turn at atomic operations and volatile reads, too, so that they share the work
  uint32_t is_plain;        // 1: no cooperative launch, whose blocks may meet
  uint64_t switches;        // out
  Fault fault, warning;     // out
};

enum class Order : uint32_t { identity, reverse, shuffle, random, rotate, starve };

// ---- called by kernels -----------------------------------------------------------------------------------------------

enum class Op : uint8_t {
  sync, shuffle_index, shuffle_up, shuffle_down, shuffle_xor, ballot, any, all, uniform,
  match_any, match_all, add, minimum, maximum, bit_and, bit_or, bit_xor, whole_warp,
};
enum class Vote : uint8_t { none, count, all, any };

// Waits for every thread of the block that has not ended; what they all say, counted or combined.
SIMT_API int barrier(Vote vote, int said, Place at);
// Waits for the lanes of `mask`; what each gets out of it. `value` of whole_warp is a pointer for `together`.
SIMT_API uint64_t warp(Op op, uint32_t mask, uint64_t value, uint32_t which, uint32_t width, Place at);
// The same for what needs every lane's operands at once: together(values) runs once, with 32 of them.
SIMT_API void warp_together(void (*together)(uint64_t*), uint64_t value, Place at);
// What a function leaves undefined for this thread; of: the function.
SIMT_API void make_undefined(void* value, size_t bytes, const char* of, Place at);
SIMT_API uint32_t active_lanes(Place at);  // those that come to this place together
SIMT_API void step_aside();               // lets others run: in loops that wait for another thread
SIMT_API void poll();                     // a read that may be one of many, by which it waits for another
SIMT_API bool in_kernel();                // or is it the host that asks?
SIMT_API char space_of(const void* at);   // s: shared memory, l: local, g: neither
SIMT_API long host_clock();
SIMT_API bool may_meet();                 // whether the launch is cooperative
SIMT_API void grid_barrier(Place at);     // waits for every thread of the grid
SIMT_API uint64_t grid_arrive(Place at);  // the same in two steps: the first does not wait for other blocks
SIMT_API void grid_wait(uint64_t phase, Place at);
// Memory order, told to the checker. wanted: what must be there for a compare-and-swap to write.
enum How : int { reads = 1, writes = 2, of_block = 4, acquires = 8, releases = 16, by_volatility = 32, synchronizes = 64 };
SIMT_API void fence(int how);
SIMT_API void atomic(void* at, int bytes, const void* caller, int how, const void* wanted);
// A copy in the background writes; what it writes is there for its own thread once it has waited for it.
SIMT_API void copies(void* to, int bytes, const void* caller);
SIMT_API void commit_copies();
SIMT_API void wait_for_copies(size_t but_the_last);
// They may land with a phase of a barrier instead: bound are those since the last commit, and who completes it lands all.
SIMT_API void bind_copies(const void* barrier);
SIMT_API void land_copies(const void* barrier);
// A phase of it orders those who release before it is over before those who acquire behind.
SIMT_API void order_by_phase(const void* barrier, uint64_t phase, int how);
// Runs the text of an asm statement; operands: what they hold, before and after.
SIMT_API void ptx_run(const char* text, uint64_t* operands, int count, Place at);
SIMT_API void launch_bounds(long long most);  // of the kernel that runs, or that a program calls to launch it
[[noreturn]] SIMT_API void fail(Trouble trouble, Place at, const char* text);
// Outside of functions a kernel's file has it by this name, under which nothing has to be made before main.
extern SIMT_API SIMT_EACH char* dynamic_shared __asm__("simt_dynamic_shared");

// ---- called by the launcher of a library (entry.h) -------------------------------------------------------------------

SIMT_API int launch(Launch* launch, void (*kernel)(const void*), const void* arguments, const void* anchor);
}  // namespace simt
