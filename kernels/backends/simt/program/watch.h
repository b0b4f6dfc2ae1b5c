// What the parts of the host's side know of one another: a whole program runs, and every access of it is judged.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>

#include "../runtime/state.h"

namespace simt {
#ifdef SIMT_PARALLEL
constexpr bool is_fast = true;  // no access is judged, and nothing known of single bytes
#else
constexpr bool is_fast = false;
#endif

// Findings beside those of a launch (Trouble); kernels/backends/simt/program/findings.py has the same.
enum class Misuse : int32_t {
  use_after_free = 64,
  double_free,
  bad_free,
  leak,
  host_access,       // by the host, of a device's memory
  host_memory,       // by a kernel
  constant_write,
  api_error,
  copied_undefined,  // by a function of the runtime API, as all below
  copied_beyond,
  unsynchronized,    // the host accesses what a kernel or a copy may still write
  host_crash,
  stream_race,
  host_address,      // the host passes what means something else to a device
};

enum class Kind : int32_t { none, device, pinned, managed, heap, variable, constant, managed_variable, shared, function, virtual_table };

// The calls of the program's own code that led to one of the API, the innermost first; 0: no more.
struct Calls {
  uint64_t pcs[12];
};

// Some memory, as it is told of.
struct Memory {
  Kind kind;
  int32_t freed;
  uint64_t bytes;
  int64_t offset;  // of the access
  uint64_t made_pc, freed_pc;
  char name[64];
  Calls made, gone;
  int32_t parameter;  // of the running kernel, from 1 on, by which it was passed; 0: none, or several
};

struct Record {
  Fault fault;
  Memory memory;
  uint64_t count;
  uint32_t harmless;
  Calls by_way_of;  // where an access of an algorithm's was called for
  uint32_t grid[3], block[3];
  int32_t launch_line;
  char launch_file[256], kernel[128];
};

// What the process that started this one reads, whatever becomes of this one.
struct Table {
  uint32_t count, lost, launches, order;
  uint64_t seed;
  uint64_t outcome;  // a digest of what the host has read since a value was undefined
  int32_t running_line;
  char running_file[256], running[128];  // where it was launched; the kernel, empty: none
  char refused[512];
  Calls asking;  // for it, where that tells the line
  Record records[512];
};
extern Table* table;

struct LaunchedFrom {
  const char* kernel;
  Place at;
};
extern LaunchedFrom launched;
extern std::recursive_mutex api_lock;
extern std::recursive_mutex kernel_lock;  // of what kernels do, while a launch holds the other one

// findings.cpp
void note(const Fault& fault, const Memory& memory, bool harmless);
void found(const Fault& fault, bool harmless);
void report(Misuse what, uintptr_t pc, const Memory& memory, const char* text = "", size_t bytes = 0, bool writes = false);
void host_reads(const void* at, size_t bytes);
[[noreturn]] void refuse(const char* text);
void refuse_at(const char* what, Place at);
void open_table();

// memory.cpp
struct Open {  // the device's memory may be accessed
  Open();
  ~Open();
};
void* allocate(size_t bytes, Kind kind, uintptr_t pc);
void* allocate_ordered(size_t bytes, uintptr_t pc);
cudaError_t release(void* at, bool of_host, uintptr_t pc);
void release_all();
void register_host(const void* at, size_t bytes, uintptr_t pc);
bool is_registered(const void* at);
bool unregister_host(const void* at);
Memory memory_at(uintptr_t at);  // kind none: the host's own
size_t allocated();
size_t device_memory();  // bytes that there are in all
void limit_memory();
bool judged(uintptr_t at, size_t bytes, int how, uintptr_t pc);
bool judge_copy(const void* at, size_t bytes, bool is_write, const char* name, uintptr_t pc);
void copy_states(const void* to, const void* from, size_t bytes);
Calls calls_here();
void collect_regions(Launch& launch);
Memory memory_of_region(int region, int64_t offset);
void report_leaks();
extern thread_local int acting __attribute__((tls_model("initial-exec")));  // algorithms of Thrust's that this thread runs for the device
extern const char* acting_as;  // the outermost
size_t static_shared();
void load_symbols();
bool is_reachable(uintptr_t at);

// crossing.cpp
void add_symbol(uintptr_t begin, size_t bytes, Kind kind, const char* name);
void host_learns(const void* at, size_t bytes);  // addresses that the device has put there
bool is_of_host(const void* at);  // a variable's address, as the host has it
void judge_arguments(const void* at, size_t bytes, const char* kernel, Place where);
void cross(const void* to, const void* from, size_t bytes);  // a copy was made
void place_object(uintptr_t at);                             // the host constructs one there
extern bool any_crossed;
void judge_crossed(uintptr_t at, size_t bytes, int how, uintptr_t pc);  // a kernel's access

// crew.cpp
void launch_on_all(Launch& how, void (*kernel)(const void*), const void* arguments, const void* anchor);

// launch.cpp
int parameter_within(uintptr_t begin, size_t bytes);  // as in Memory
extern thread_local bool launching __attribute__((tls_model("initial-exec")));  // this thread of the host's runs a kernel
cudaError_t told(cudaError_t what, const char* function, uintptr_t pc, const char* why = "");
extern cudaError_t sticky;
extern size_t most_dynamic_shared;
}  // namespace simt

#define API extern "C" SIMT_API
#define CALLER reinterpret_cast<uintptr_t>(__builtin_return_address(0))
#define TELL(ERROR, WHY) simt::told(ERROR, __func__, CALLER, WHY)
#define FINE simt::told(cudaSuccess, __func__, CALLER)
#define LOCKED std::lock_guard<std::recursive_mutex> locked(simt::api_lock)
