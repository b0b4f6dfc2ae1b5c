// Signals of the processor as results of a launch, and what is known of the library that a kernel lies in.
#include "state.h"

#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {
namespace {
struct Library {
  uintptr_t begin, end;
  char* shared;
  size_t shared_bytes;
};
Library library, runtime;

int find(dl_phdr_info* info, size_t, void* data) {
  auto [address, found] = *static_cast<std::pair<uintptr_t, Library*>*>(data);
  bool mine = false;
  Library seen{~uintptr_t{0}, 0, static_cast<char*>(info->dlpi_tls_data), 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
    if (part.p_type == PT_TLS) {
      seen.shared_bytes = part.p_memsz;
      auto tls = reinterpret_cast<uintptr_t>(seen.shared);
      mine |= tls && address - tls < part.p_memsz;
    }
    if (part.p_type != PT_LOAD) continue;
    seen.begin = begin < seen.begin ? begin : seen.begin;
    seen.end = end > seen.end ? end : seen.end;
    mine |= address >= begin && address < end;
  }
  if (mine) *found = seen;
  return mine;
}

Library library_of(const void* address) {
  Library found{};
  std::pair<uintptr_t, Library*> data{reinterpret_cast<uintptr_t>(address), &found};
  dl_iterate_phdr(find, &data);
  return found;
}

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];
SIMT_EACH stack_t stack_before;

uint64_t program_counter(void* context) {
#if defined(__x86_64__)
  return static_cast<uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#else
  (void)context;
  return 0;
#endif
}

void on_signal(int number, siginfo_t* info, void* context) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Fault& f = S.launch->fault;
  Trouble trouble = number == SIGFPE ? Trouble::arithmetic : number == SIGILL ? Trouble::trap : Trouble::memory_fault;
  if (trouble == Trouble::memory_fault && is_stack_guard(address)) trouble = Trouble::stack_overflow;
  char text[64] = "";
  if (trouble == Trouble::trap) snprintf(text, sizeof text, "an illegal instruction");
  if (trouble == Trouble::memory_fault) {
    // The processor tells no address where a vector is misaligned, or where no memory could ever be.
    const char* unknown = info->si_code == SI_KERNEL ? "a misaligned or impossible address" : "null";
    if (address) snprintf(text, sizeof text, "%p", info->si_addr);
    else snprintf(text, sizeof text, "%s", unknown);
  }
  // One more: the next instruction's address is what a return address would be.
  uint64_t pc = in_library(program_counter(context)) ? program_counter(context) - library.begin + 1 : relative(acting_for);
  if (f.trouble == static_cast<int32_t>(Trouble::none)) f.pc = pc;
  fail(trouble, {"", 0}, text);
}
}  // namespace

void find_library(const void* anchor) {
  static SIMT_EACH const void* known;
  if (!runtime.end) runtime = library_of(&runtime);
  if (known == anchor) return;
  known = anchor;
  Library found = library_of(anchor);
  if (found.begin != library.begin) library = found;
  S.shared = found.shared, S.shared_bytes = found.shared_bytes;
}

uintptr_t library_start() { return library.begin; }
bool in_library(uintptr_t address) { return address >= library.begin && address < library.end; }
bool in_runtime(uintptr_t address) { return address >= runtime.begin && address < runtime.end; }

uint64_t relative(const void* code) {
  auto at = reinterpret_cast<uintptr_t>(code);
  return in_library(at) ? at - library.begin : 0;
}

// Folders may be longer than there is room: as many as fit tell which of two files of one name it is.
void set_file(char (&to)[256], const char* file) {
  size_t length = file ? strlen(file) : 0;
  snprintf(to, sizeof to, "%s", length < sizeof to ? file ? file : "" : file + length - sizeof to + 1);
}

void set_place(Fault& fault, Place at) {
  fault.line = at.line;
  set_file(fault.file, at.file);
}

const Watcher* watcher;
SIMT_EACH const void* acting_for;

void warn(const Fault& f) {
  if (watcher) return watcher->found(f, true);
  if (!S.launch->warnings++) S.launch->warning = f;
}

void guard_begin() {
  static SIMT_EACH char* stack;
  if (!stack) stack = static_cast<char*>(malloc(64 << 10));
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = 64 << 10;
  sigaltstack(&own, &stack_before);
  if (!S.of_crew) guard_process(true);
}

void guard_end() {
  if (!S.of_crew) guard_process(false);
  sigaltstack(&stack_before, nullptr);
}

void guard_process(bool begins) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < 4; ++i) begins ? sigaction(signals[i], &action, &before[i]) : sigaction(signals[i], &before[i], nullptr);
}
}  // namespace simt

// A vector access at an address that is no multiple of its size: g++ checks each (-fsanitize=alignment) and calls this.
extern "C" SIMT_API void __ubsan_handle_type_mismatch_v1_abort(void* data, uintptr_t address) {
  struct Described {
    const char* file;
    uint32_t line, column;
  };
  const auto* at = static_cast<const Described*>(data);
  char text[64];
  if (!simt::S.active) abort();
  snprintf(text, sizeof text, "%#zx", static_cast<size_t>(address));
  simt::fail(simt::Trouble::misaligned, {at->file, static_cast<int>(at->line)}, address ? text : "null");
}

namespace simt {
namespace {
// What g++ says of an index (-fsanitize=bounds-strict).
struct TypeName {
  uint16_t kind, info;  // of an integer: whether it is signed, and the logarithm of its bits
  char text[];          // in quotes, as 'float [2][4]'
};
struct Index {
  const char* file;
  uint32_t line, column;
  const TypeName* array;
  const TypeName* index;
};

// How many elements an array has, and of how many dimensions it is; 0 if that is not clear.
int64_t extent_of(const char* type, int& dimensions) {
  const char* at = type + strlen(type) - 1;
  int64_t extent = 0;
  dimensions = 0;
  if (at > type && *at == '\'') --at;
  for (; at > type && *at == ']'; --at, ++dimensions) {
    while (at > type && *at != '[') --at;
    extent = atoll(at + 1);
  }
  return *at == ' ' ? extent : 0;  // not of a pointer in brackets
}

// Whether a path ends with a name, or with folders and a name.
bool is_file(const char* path, const char* end) {
  size_t length = strlen(path), wanted = strlen(end);
  return wanted <= length && !strcmp(path + length - wanted, end) && (wanted == length || *end == '/' || path[length - wanted - 1] == '/');
}

bool stands_at(const Subscript& s, const Index& at) {
  auto line = static_cast<int32_t>(at.line), column = static_cast<int32_t>(at.column);
  bool opens = s.line == line && s.column == column, closes = s.closing_line == line && s.closing_column == column;
  return (opens || closes) && is_file(at.file, s.file);
}

// The subscript that is surely an access to an array with fewer elements; null: it may do no harm.
const Subscript* sure(const Index& at, int64_t& extent) {
  int dimensions;
  extent = extent_of(at.array->text, dimensions);
  if (extent <= 1) return nullptr;  // such an array stands for one as long as it is wanted
  for (uint32_t i = 0; i < S.launch->subscript_count; ++i) {
    const Subscript& s = S.launch->subscripts[i];
    if (stands_at(s, at)) return s.further + 1 >= dimensions ? &s : nullptr;
  }
  return nullptr;
}

int64_t value_of(const TypeName& type, uintptr_t index) {
  int unused = 64 - (1 << (type.info >> 1));
  bool is_signed = type.info & 1;
  return is_signed && unused > 0 ? static_cast<int64_t>(index << unused) >> unused : static_cast<int64_t>(index);
}
}  // namespace
}  // namespace simt

// An index beyond the extent of an array, before the access. It ends the launch at once, or, of a program that is watched,
// the thread, for the access may damage the stack. What may do no harm is known by its description, and remembered: a kernel comes there again and again.
extern "C" SIMT_API void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) {
  using namespace simt;
  static const void* harmless[256];
  const void*& known = harmless[reinterpret_cast<uintptr_t>(data) / 16 % 256];
  if (!S.active || S.current < 0 || known == data) return;
  const auto& at = *static_cast<const Index*>(data);
  int64_t extent;
  const Subscript* found = sure(at, extent);
  if (!found) {
    known = data;
    return;
  }
  char text[256];
  snprintf(text, sizeof text, "%s[%lld]", found->name, static_cast<long long>(value_of(*at.index, index)));
  Fault f{};
  tell(f, Trouble::bad_index, {at.file, static_cast<int>(at.line)}, text);
  f.bytes = static_cast<int32_t>(extent);
  if (watcher) {
    bool is_variable = watcher->is_variable(found->name);
    constexpr int64_t near = 4;  // the access itself is told of
    if (is_variable && value_of(*at.index, index) - extent < near && value_of(*at.index, index) > 0) return;
    watcher->found(f, false);
    if (is_variable) return;
    end_thread();  // it would damage its own stack; the others go on
  }
  if (S.launch->fault.trouble == static_cast<int32_t>(Trouble::none)) S.launch->fault = f;
  fail(Trouble::bad_index, {at.file, static_cast<int>(at.line)}, text);
}
