// A device's memory: where it lies, whose it is, and what is known of each byte of it.
//
// It lies in one range of addresses that are never used twice. Each byte has a state; what is beside an allocation has
// none, nor what was freed. While the host runs nobody may access the part that is the device's own.
#include "streams.h"
#include "watch.h"

#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <vector>

namespace simt {
namespace {
constexpr size_t device_space = size_t{1} << 38, visible_space = size_t{1} << 37, space = device_space + visible_space;
constexpr size_t alignment = 256, least_gap = 512, most_gap = 1 << 20, margin = 1 << 20, page = 4096;
// visible: to the host, too; ordered: it need not wait.
enum State : uint8_t { nobodys, undefined_byte, defined_byte, ordered, visible };

struct Allocation {
  size_t bytes;
  Kind kind;
  bool freed;
  uintptr_t made_pc, freed_pc;
  Calls made, gone;
};
struct Variable {
  uintptr_t begin;
  size_t bytes;
  Kind kind;
  std::string name;
};
struct Registered {  // memory of the host's that the device may access
  uintptr_t begin;
  size_t bytes, slot;
  uintptr_t made_pc;
  Calls made;
};
struct Shared {
  std::string name;
  size_t bytes;
};

uintptr_t arena, device_top, visible_top;
uintptr_t launch_top;  // of the device's memory when the launch began: behind it lies what kernels allocate, no zones
uint8_t* states;
size_t live_bytes;
int opened;
// Never destroyed: the program's own destructors may free, and what is left is told of last.
auto& allocations = *new std::map<uintptr_t, Allocation>;
auto& registered = *new std::vector<Registered>;
std::atomic<bool> any_registered;
auto& variables = *new std::vector<Variable>;  // by address
uintptr_t data_begin, data_end;   // what can be written of the program's file
auto& shared_names = *new std::vector<Shared>;
auto& shared_regions = *new std::vector<Region>;
auto& subscripts = *new std::vector<Subscript>;
auto& regions = *new std::vector<Region>;
size_t greatest_shared;

uint8_t* state_of(uintptr_t at) { return states + (at - arena); }
void become(uintptr_t at, uint8_t state, size_t bytes) {
  if (!is_fast) memset(state_of(at), state, bytes);
}
bool in_arena(uintptr_t at) { return at - arena < space; }
bool of_device(Kind kind) { return kind == Kind::device || kind == Kind::heap; }
uintptr_t up(uintptr_t at, size_t to) { return (at + to - 1) / to * to; }

void protect(int how) {
  size_t used = up(device_top - arena + margin, page);
  mprotect(reinterpret_cast<void*>(arena), std::min(used, device_space), how);
}

Memory tell(uintptr_t begin, const Allocation& a, uintptr_t at) {
  Memory m{a.kind, a.freed, a.bytes, static_cast<int64_t>(at - begin), relative((void*)a.made_pc), relative((void*)a.freed_pc), "", a.made, a.gone, parameter_within(begin, a.bytes)};
  return m;
}

Memory tell(const Variable& v, uintptr_t at) {
  Memory m{v.kind, 0, v.bytes, static_cast<int64_t>(at - v.begin), 0, 0, "", {}, {}, 0};
  snprintf(m.name, sizeof m.name, "%s", v.name.c_str());
  return m;
}

// The allocation that holds an address, or else the nearest one.
auto nearest(uintptr_t at) {
  auto after = allocations.upper_bound(at);
  if (after == allocations.begin()) return after;
  auto before = std::prev(after);
  if (after == allocations.end() || at < before->first + before->second.bytes) return before;
  uintptr_t behind = at - (before->first + before->second.bytes);
  return behind <= after->first - at ? before : after;
}

const Variable* variable_at(uintptr_t at) {
  auto after = std::upper_bound(variables.begin(), variables.end(), at, [](uintptr_t x, const Variable& v) { return x < v.begin; });
  return after == variables.begin() ? nullptr : &*std::prev(after);
}

Fault fault_of(int32_t trouble, const Memory& m, size_t bytes, int how, uintptr_t pc) {
  Fault f{};
  f.trouble = trouble, f.region = m.kind == Kind::none ? -1 : 0, f.offset = m.offset;
  f.bytes = static_cast<int32_t>(bytes), f.writes = how & a_write ? 1 : 0;
  f.thread = how & by_host ? -1 : S.current, f.other = -1, f.block = static_cast<uint32_t>(S.block);
  f.pc = relative(reinterpret_cast<void*>(pc));
  if (acting) snprintf(f.file, sizeof f.file, "%s", acting_as);
  return f;
}
void note(Trouble t, const Memory& m, size_t bytes, int how, uintptr_t pc) {
  note(fault_of(static_cast<int32_t>(t), m, bytes, how, pc), m, false);
}
void note(Misuse t, const Memory& m, size_t bytes, int how, uintptr_t pc) {
  note(fault_of(static_cast<int32_t>(t), m, bytes, how, pc), m, false);
}

// An access to bytes that are nobody's.
__attribute__((noinline)) bool beyond(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  auto a = nearest(at);
  Memory m{};
  m.offset = static_cast<int64_t>(at);
  if (a != allocations.end()) m = tell(a->first, a->second, at);
  if (m.freed && m.offset >= 0 && static_cast<uint64_t>(m.offset) < m.bytes) note(Misuse::use_after_free, m, bytes, how, pc);
  else note(Trouble::out_of_bounds, m, bytes, how, pc);
  return true;
}

// api: the function that does it; null: a kernel.
void note(Misuse t, const Conflict& c, Memory m, size_t bytes, int how, uintptr_t pc, const char* api = nullptr) {
  m.gone = c.with->calls;
  Fault f = fault_of(static_cast<int32_t>(t), m, bytes, api ? how | by_host : how, pc);
  f.other_writes = c.it_writes, f.other_pc = c.with->calls.pcs[0];
  snprintf(f.text, sizeof f.text, "%s", c.with->name.c_str());
  if (api) snprintf(f.file, sizeof f.file, "%s", api);
  note(f, m, false);
}

const Registered* registered_at(uintptr_t at, size_t bytes) {
  for (auto& r : registered)
    if (at - r.begin < r.bytes && at + bytes <= r.begin + r.bytes) return &r;
  return nullptr;
}

Memory tell(const Registered& r, uintptr_t at) {
  return {Kind::pinned, 0, r.bytes, static_cast<int64_t>(at - r.begin), relative((void*)r.made_pc), 0, "", r.made, {}, parameter_within(r.begin, r.bytes)};
}

// Of memory that work in several streams may access, or work and the host, which sees it: of variables, then of what is
// registered, behind all else.
size_t slot_of(uintptr_t at) {
  if (in_arena(at)) return at - arena;
  if (at - data_begin < data_end - data_begin) return space + (at - data_begin);
  const Registered* r = registered_at(at, 1);
  return r ? r->slot + (at - r->begin) : most_marks;
}
Memory memory_seen(uintptr_t at) {
  Memory m = memory_at(at);
  const Registered* r = m.kind == Kind::none ? registered_at(at, 1) : nullptr;
  return r ? tell(*r, at) : m;
}
__attribute__((noinline)) void judge_streams(uintptr_t at, size_t bytes, int how, uintptr_t pc, bool seen, const char* api = nullptr) {
  size_t slot = slot_of(at);
  if (is_fast || (!many_streams && !seen) || slot + bytes > most_marks) return;
  if (Conflict c = work_accesses(slot, bytes, how); c.with) note(Misuse::stream_race, c, memory_seen(at), bytes, how, pc, api);
}

void judge_host(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  Conflict c = slot_of(at) + bytes > most_marks ? Conflict{} : host_accesses(slot_of(at), bytes, how);
  if (c.with && how & polls) host_waits_for_all();  // a flag, by which the host waits for what the kernel wrote before it
  else if (c.with) note(Misuse::unsynchronized, c, memory_seen(at), bytes, how, pc);
}

bool kernel_in_arena(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  uint8_t* s = state_of(at);
  if (any_crossed && *s != nobodys) judge_crossed(at, bytes, how, pc);
  if (*s == visible || (many_streams && *s != ordered && *s != nobodys)) judge_streams(at, bytes, how, pc, *s == visible);
  if (bytes == 4) {
    uint32_t four;
    memcpy(&four, s, 4);
    if (four == defined_byte * 0x01010101u) return at >= launch_top && at - arena < device_space;
  }
  bool is_undefined = true;
  for (size_t i = 0; i < bytes; ++i) {
    if (s[i] == nobodys) return beyond(at, bytes, how, pc);
    is_undefined &= s[i] == undefined_byte;
  }
  // Of a structure with gaps some bytes are never written.
  if (is_undefined && (!(how & a_write) || how & reads_too)) {
    auto a = nearest(at);
    note(Trouble::uninitialized, tell(a->first, a->second, at), bytes, how, pc);
  }
  if (how & a_write && *s < ordered) memset(s, defined_byte, bytes);
  return at >= launch_top && at - arena < device_space;
}

bool host_in_arena(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  std::lock_guard<std::recursive_mutex> locked(api_lock);
  if (at - arena < device_space) {
    auto a = nearest(at);
    Memory m{};
    if (a != allocations.end()) m = tell(a->first, a->second, at);
    note(Misuse::host_access, m, bytes, how, pc);
    ++opened, protect(PROT_READ | PROT_WRITE), --opened;  // it goes on; the next call closes it again
    return true;
  }
  uint8_t* s = state_of(at);
  for (size_t i = 0; i < bytes; ++i)
    if (s[i] == nobodys) return beyond(at, bytes, how, pc);
  if (*s != ordered) judge_host(at, bytes, how, pc);
  if (how & constructs) place_object(at);
  if (!(how & a_write)) host_reads(reinterpret_cast<void*>(at), bytes), host_learns(reinterpret_cast<void*>(at), bytes);
  return true;
}

bool host_in_registered(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  std::lock_guard<std::recursive_mutex> locked(api_lock);
  if (!acting && registered_at(at, bytes)) judge_host(at, bytes, how, pc);
  else if (registered_at(at, bytes)) judge_streams(at, bytes, how, pc, true);
  return true;
}

bool variable_accessed(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  const Variable* v = variable_at(at);
  bool inside = v && at - v->begin < v->bytes;
  if (how & by_host && !acting) {
    if (inside && v->kind != Kind::managed_variable) note(Misuse::host_access, tell(*v, at), bytes, how, pc);
    else if (inside) judge_host(at, bytes, how, pc), host_reads(reinterpret_cast<void*>(at), how & a_write ? 0 : bytes);
    return true;
  }
  if (inside && at + bytes <= v->begin + v->bytes) {
    if (any_crossed) judge_crossed(at, bytes, how, pc);
    if (bool seen = v->kind == Kind::managed_variable; seen || many_streams) judge_streams(at, bytes, how, pc, seen);
    if (v->kind == Kind::constant && how & a_write) note(Misuse::constant_write, tell(*v, at), bytes, how, pc);
    return v->kind == Kind::constant;
  }
  constexpr uintptr_t near = 64;
  // What else lies there is no variable of the host's, which nvcc lets no kernel name.
  if (v && at - v->begin < v->bytes + near) note(Trouble::out_of_bounds, tell(*v, at), bytes, how, pc);
  return true;
}

// On a device this is an illegal address, which ends the launch.
__attribute__((noinline)) bool foreign(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  if (registered_at(at, bytes)) return judge_streams(at, bytes, how, pc, true), false;
  Memory m{};
  m.offset = static_cast<int64_t>(at);
  bool is_null = at < page;
  Fault f = fault_of(static_cast<int32_t>(is_null ? Trouble::memory_fault : static_cast<Trouble>(Misuse::host_memory)), m, bytes, how, pc);
  snprintf(f.text, sizeof f.text, is_null && !at ? "null" : "%#zx", static_cast<size_t>(at));
  S.launch->fault = f;
  fail(static_cast<Trouble>(f.trouble), {"", 0}, "");
}
}  // namespace

Open::Open() {
  if (!opened++) protect(PROT_READ | PROT_WRITE);
}
Open::~Open() {
  if (!--opened) protect(PROT_NONE);
}

bool judged(uintptr_t at, size_t bytes, int how, uintptr_t pc) {
  if (!launching) how |= by_host;
  if (in_arena(at)) return how & by_host && !acting ? host_in_arena(at, bytes, how, pc) : kernel_in_arena(at, bytes, how, pc);
  if (at - data_begin < data_end - data_begin) return variable_accessed(at, bytes, how, pc);
  if (how & by_host) return !any_registered || host_in_registered(at, bytes, how, pc);
  if (at - reinterpret_cast<uintptr_t>(S.shared) < S.shared_bytes || is_stack(at)) return false;
  if (at - reinterpret_cast<uintptr_t>(dynamic_shared) < (256 << 10) + page) return false;
  if (in_library(at) || in_runtime(at) || is_reachable(at)) return true;
  return foreign(at, bytes, how, pc);
}

Calls calls_here() {
  Calls found{};
  void* all[64];
  uint64_t* to = found.pcs;
  int count = launching ? 0 : backtrace(all, 64);
  for (int i = 0; i < count && to < std::end(found.pcs); ++i)
    if (in_library(reinterpret_cast<uintptr_t>(all[i]))) *to++ = relative(all[i]);
  return found;
}

void* allocate(size_t bytes, Kind kind, uintptr_t pc) {
  bool is_device = of_device(kind);
  uintptr_t& top = is_device ? device_top : visible_top;
  uintptr_t end = arena + (is_device ? device_space : space);
  size_t gap = std::clamp(bytes, least_gap, most_gap), whole = up(bytes + gap, alignment);
  if (whole < bytes || whole > end - top - margin) return nullptr;
  uintptr_t at = top;
  top += whole;
  if (opened || !is_device) {
    if (!is_device) mprotect(reinterpret_cast<void*>(at / page * page), up(whole + page, page), PROT_READ | PROT_WRITE);
    else protect(PROT_READ | PROT_WRITE);
  }
  become(at, is_device ? undefined_byte : visible, bytes);
  allocations[at] = {bytes, kind, false, pc, 0, calls_here(), {}};
  live_bytes += bytes;
  return reinterpret_cast<void*>(at);
}

// For who waits for kernels wherever it accesses memory, as Thrust does.
void* allocate_ordered(size_t bytes, uintptr_t pc) {
  void* got = allocate(bytes, Kind::managed, pc);
  if (got) become(reinterpret_cast<uintptr_t>(got), ordered, bytes);
  return got;
}

cudaError_t release(void* given, bool of_host, uintptr_t pc) {
  auto at = reinterpret_cast<uintptr_t>(given);
  if (!at) return cudaSuccess;
  auto a = allocations.find(at);
  bool known = a != allocations.end() && (a->second.kind == Kind::pinned) == of_host;
  if (!known || a->second.freed) {
    report(known ? Misuse::double_free : Misuse::bad_free, pc, memory_at(at));
    return cudaErrorInvalidValue;
  }
  Allocation& it = a->second;
  it.freed = true, it.freed_pc = pc, it.gone = calls_here();
  live_bytes -= it.bytes;
  become(at, nobodys, it.bytes);
  uintptr_t first = up(at, page), last = (at + it.bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  return cudaSuccess;
}

void release_all() {
  for (auto& [at, a] : allocations)
    if (!a.freed) a.freed = true, become(at, nobodys, a.bytes);
  live_bytes = 0;
}

void register_host(const void* at, size_t bytes, uintptr_t pc) {
  static size_t top = space + (data_end - data_begin);
  registered.push_back({reinterpret_cast<uintptr_t>(at), bytes, top, pc, calls_here()});
  top += bytes, any_registered = true;
}
bool unregister_host(const void* at) {
  auto gone = std::remove_if(registered.begin(), registered.end(), [&](auto& r) { return r.begin == reinterpret_cast<uintptr_t>(at); });
  bool any = gone != registered.end();
  registered.erase(gone, registered.end());
  any_registered = !registered.empty();
  return any;
}
bool is_registered(const void* at) { return registered_at(reinterpret_cast<uintptr_t>(at), 1); }

Memory memory_at(uintptr_t at) {
  if (in_arena(at)) {
    auto a = nearest(at);
    if (a != allocations.end()) return tell(a->first, a->second, at);
  }
  const Variable* v = at - data_begin < data_end - data_begin ? variable_at(at) : nullptr;
  return v && at - v->begin < v->bytes ? tell(*v, at) : Memory{};
}

size_t allocated() { return live_bytes; }

size_t device_memory() {
  // What is known of each byte takes as much again.
  static const size_t half = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page / 2;
  return std::min(half, size_t{80} << 30);
}

// A copy or a set of the API. False: it may not be made.
bool judge_copy(const void* given, size_t bytes, bool is_write, const char* name, uintptr_t pc) {
  auto at = reinterpret_cast<uintptr_t>(given);
  if (!bytes) return true;
  Memory m = memory_at(at);
  if (!in_arena(at)) {
    bool fits = m.kind == Kind::none || m.offset + bytes <= m.bytes;
    if (!fits) report(Misuse::copied_beyond, pc, m, name, bytes, is_write);
    else if (m.kind != Kind::none) judge_streams(at, bytes, is_write ? a_write : 0, pc, m.kind == Kind::managed_variable, name);
    else if (registered_at(at, bytes)) judge_streams(at, bytes, is_write ? a_write : 0, pc, true, name);
    return fits;
  }
  if (m.kind == Kind::none || m.freed || m.offset < 0 || m.offset + bytes > m.bytes) {
    bool gone = m.freed && m.offset >= 0 && static_cast<uint64_t>(m.offset) < m.bytes;
    report(gone ? Misuse::use_after_free : Misuse::copied_beyond, pc, m, name, bytes, is_write);
    return false;
  }
  if (is_fast) return true;
  if (*state_of(at) != ordered) judge_streams(at, bytes, is_write ? a_write : 0, pc, *state_of(at) == visible, name);
  if (is_write) return true;
  // What is undefined is told of where it is no gap of a structure: a long run, or the only one of many bytes.
  const uint8_t* s = state_of(at);
  size_t runs = 0, longest = 0, first = 0;
  for (size_t i = 0, run = 0; i < bytes; ++i) {
    run = s[i] == undefined_byte ? run + 1 : 0;
    runs += run == 1;
    if (run > longest) longest = run, first = i + 1 - run;
  }
  if (longest < 16 && !(runs == 1 && bytes >= 64)) return true;
  m.offset += static_cast<int64_t>(first);
  report(Misuse::copied_undefined, pc, m, name, longest);
  return true;
}

void copy_states(const void* to, const void* from, size_t bytes) {
  auto t = reinterpret_cast<uintptr_t>(to), f = reinterpret_cast<uintptr_t>(from);
  if (!in_arena(t) || t - arena >= device_space || is_fast) return;
  if (from && in_arena(f) && f - arena < device_space) memmove(state_of(t), state_of(f), bytes);
  else memset(state_of(t), defined_byte, bytes);
}

void collect_regions(Launch& l) {
  regions.clear();
  launch_top = device_top;
  for (auto& [at, a] : allocations)
    if (!a.freed) regions.push_back({at, a.bytes, 0});
  for (auto& v : variables)
    if (v.kind != Kind::constant) regions.push_back({v.begin, v.bytes, 0});
  for (auto& r : registered) regions.push_back({r.begin, r.bytes, 0});
  constexpr size_t most_regions = 8000;  // of more no races are judged
  if (regions.size() > most_regions) regions.clear(), launch_top = arena;
  l.regions = regions.data(), l.region_count = static_cast<uint32_t>(regions.size());
  l.shared_arrays = shared_regions.data(), l.shared_count = static_cast<uint32_t>(shared_regions.size());
  l.subscripts = subscripts.data(), l.subscript_count = static_cast<uint32_t>(subscripts.size());
}

Memory memory_of_region(int region, int64_t offset) {
  Memory m{};
  m.offset = offset;
  if (region < 0) return m;
  auto number = static_cast<size_t>(region);
  if (number < regions.size()) m = memory_at(regions[number].begin), m.offset = offset;
  else {
    number -= regions.size();
    bool is_static = number < shared_names.size();
    m.kind = Kind::shared;
    m.bytes = is_static ? shared_names[number].bytes : S.launch->dynamic_shared;
    snprintf(m.name, sizeof m.name, "%s", is_static ? shared_names[number].name.c_str() : "dynamic shared memory");
  }
  return m;
}

void report_leaks() {
  for (auto& [at, a] : allocations)
    if (!a.freed) report(Misuse::leak, a.made_pc, tell(at, a, at), "", a.bytes);
}

size_t static_shared() { return greatest_shared; }

// Lines of words, which the command has written: see compile.py.
void load_symbols() {
  uintptr_t base = library_start();
  std::string path = std::string(getenv("KERNEL_ASSAY_SYMBOLS") ? getenv("KERNEL_ASSAY_SYMBOLS") : "");
  FILE* file = path.empty() ? nullptr : fopen(path.c_str(), "r");
  if (!file) return;
  char word[16], name[512], source[512];
  unsigned long long a, b, c, d, e, f, g;
  while (fscanf(file, "%15s", word) == 1) {
    if (!strcmp(word, "data") && fscanf(file, "%llx %llx", &a, &b) == 2) data_begin = base + a, data_end = base + b;
    else if (!strcmp(word, "greatest") && fscanf(file, "%llu", &a) == 1) greatest_shared = a;
    else if (!strcmp(word, "variable") && fscanf(file, "%llu %llx %llu %511s", &a, &b, &c, name) == 4) {
      if (auto kind = static_cast<Kind>(a); kind >= Kind::function) add_symbol(base + b, c, kind, name);
      else variables.push_back({base + b, static_cast<size_t>(c), kind, name});
    }
    else if (!strcmp(word, "shared") && fscanf(file, "%llu %llu %511s", &a, &b, name) == 3) {
      bool named = strcmp(name, "-");
      shared_names.push_back({name, static_cast<size_t>(b)});
      shared_regions.push_back({static_cast<uintptr_t>(a), b, named ? static_cast<int32_t>(shared) : 0});
    } else if (!strcmp(word, "subscript") &&
               fscanf(file, "%llu %llu %llu %llu %llu %511s %511s", &c, &d, &e, &f, &g, name, source) == 7)
      subscripts.push_back({strdup(source), strdup(name), (int)c, (int)d, (int)e, (int)f, (int)g});
  }
  fclose(file);
  std::sort(variables.begin(), variables.end(), [](auto& x, auto& y) { return x.begin < y.begin; });
}

// Before anything of the program: this library is initialized first.
static bool begin() {
  static const auto silent = [](uintptr_t, size_t, int, uintptr_t) { return true; };
  static const Watcher watching{found, is_fast ? +silent : judged, refuse_at, [](const char* name) {
    return std::any_of(variables.begin(), variables.end(), [&](const Variable& v) { return v.name == name; });
  }};
  open_table();
  find_library(reinterpret_cast<void*>(getauxval(AT_PHDR)));
  auto map = [](size_t bytes, int how) {
    void* got = mmap(nullptr, bytes, how, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) refuse("this system lends a process too few addresses to emulate a device's memory in");
    return got;
  };
  arena = reinterpret_cast<uintptr_t>(map(space, PROT_NONE));
  states = static_cast<uint8_t*>(map(space, PROT_READ | PROT_WRITE));
  device_top = arena + margin, visible_top = arena + device_space + margin;
  load_symbols(), limit_memory();
  watcher = &watching;
  return true;
}
static const bool begun = begin();
}  // namespace simt
