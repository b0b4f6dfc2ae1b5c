// Launches of a program's kernels, and errors as a device has them: asynchronous, and some of them for good.
#include "launch.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "streams.h"
#include "watch.h"

namespace simt {
LaunchedFrom launched;
cudaError_t sticky = cudaSuccess;
size_t most_dynamic_shared = 48 << 10;
thread_local bool launching;

namespace {
cudaError_t last = cudaSuccess, late = cudaSuccess;  // late: of a launch, known to the host when it next waits
constexpr size_t greatest_block_shared = 227 << 10;
uintptr_t parameters, parameters_end;
std::vector<const void*> passed;
thread_local Launching* begun;

cudaError_t error_of(int32_t trouble) {
  switch (static_cast<Trouble>(trouble)) {
    case Trouble::stack_overflow: return cudaErrorHardwareStackError;
    case Trouble::trap: return cudaErrorLaunchFailure;
    case Trouble::misaligned: return cudaErrorMisalignedAddress;
    case Trouble::deadlock: return cudaErrorLaunchTimeout;
    case Trouble::memory_fault: return cudaErrorIllegalAddress;
    default: return trouble == static_cast<int32_t>(Misuse::host_memory) ? cudaErrorIllegalAddress : cudaErrorLaunchFailure;
  }
}

const char* wrong_with(const Launching& launch, cudaError_t& error) {
  const Config& c = launch.how;
  uint64_t threads = uint64_t{c.block.x} * c.block.y * c.block.z, blocks = uint64_t{c.grid.x} * c.grid.y * c.grid.z;
  error = cudaErrorInvalidConfiguration;
  if (!threads) return "a block of 0 threads";
  if (!blocks) return "a grid of 0 blocks";
  if (threads > max_threads || c.block.x > 1024 || c.block.y > 1024) return "a block of more than 1024 threads";
  if (c.block.z > 64) return "a block of more than 64 threads along z";
  if (c.grid.x > 0x7fffffff || c.grid.y > 65535 || c.grid.z > 65535) return "a grid of too many blocks";
  error = cudaErrorInvalidResourceHandle;
  if (!is_stream(c.stream)) return "no stream, as one that was destroyed";
  error = cudaErrorInvalidValue;
  if (c.shared + static_shared() > greatest_block_shared) return "more shared memory than a block has";
  if (c.shared > most_dynamic_shared) return "more than 48 KB of dynamic shared memory, without cudaFuncSetAttribute";
  static thread_local char text[96];
  snprintf(text, sizeof text, "a block of %llu threads, but its __launch_bounds__ allow %llu", (unsigned long long)threads, launch.most_threads);
  if (launch.most_threads && threads > launch.most_threads) return text;
  error = cudaErrorCooperativeLaunchTooLarge;
  if (launch.cooperative && blocks > processors * blocks_at_once(threads, c.shared)) return "more blocks than the device holds at once";
  return nullptr;
}

std::string placed(const char* text, Place at) {
  const char* slash = strrchr(at.file, '/');
  return std::string(text) + " (" + (slash ? slash + 1 : at.file) + ", line " + std::to_string(at.line) + ")";
}

void note_launch(cudaError_t error, const char* why, Place at, const char* kernel) {
  Fault f{};
  f.trouble = static_cast<int32_t>(Misuse::api_error);
  f.region = f.other = f.thread = -1;
  set_place(f, at);
  snprintf(f.text, sizeof f.text, "the launch of %s: %s, %s", kernel, cudaGetErrorName(error), why);
  note(f, Memory{}, false);
}

void run(const Launching& launch) {
  const Config& c = launch.how;
  Open opened;
  Launch how{};
  how.grid[0] = c.grid.x, how.grid[1] = c.grid.y, how.grid[2] = c.grid.z;
  how.block[0] = c.block.x, how.block[1] = c.block.y, how.block[2] = c.block.z;
  how.dynamic_shared = static_cast<uint32_t>(c.shared), how.order = table->order, how.seed = table->seed;
  how.check = !is_fast, how.undefined_byte = 0x7b, how.shares = !is_fast && table->seed, how.is_plain = !launch.cooperative;
  collect_regions(how);
  find_library(launch.anchor);
  // The host's own thread-local variables lie among the shared ones.
  std::vector<char> kept(S.shared, S.shared + S.shared_bytes);
  launching = true;
  launch_on_all(how, launch.thread, launch.call, launch.anchor);
  launching = false;
  memcpy(S.shared, kept.data(), kept.size());
  S.current = -1;
  if (how.fault.trouble == static_cast<int32_t>(Trouble::none)) return;
  S.active = true;  // for the note: it is of this launch
  bool is_misaligned = how.fault.trouble == static_cast<int32_t>(Trouble::misaligned);
  if (is_misaligned) note(how.fault, memory_at(strtoul(how.fault.text, nullptr, 16)), false);
  else found(how.fault, false);
  S.active = false;
  late = error_of(how.fault.trouble);
  if (how.fault.trouble == static_cast<int32_t>(Trouble::trap) && strstr(how.fault.text, "assertion")) late = cudaErrorAssert;
}
}  // namespace

bool is_reachable(uintptr_t at) { return at - parameters < parameters_end - parameters; }

int parameter_within(uintptr_t begin, size_t bytes) {
  int found = 0;
  for (size_t i = 0; launching && i < passed.size(); ++i)
    if (reinterpret_cast<uintptr_t>(passed[i]) - begin < bytes) found = found ? -1 : static_cast<int>(i) + 1;
  return std::max(found, 0);
}

// What stands: an error that every call gives from now on.
static cudaError_t standing() {
  if (late != cudaSuccess) sticky = std::exchange(late, cudaSuccess);
  return sticky == cudaSuccess ? sticky : last = sticky;
}

cudaError_t told(cudaError_t what, const char* function, uintptr_t pc, const char* why) {
  if (cudaError_t stands = standing()) return stands;
  if (what == cudaSuccess) return what;
  last = what;
  if (what != cudaErrorNotReady)
    report(Misuse::api_error, pc, Memory{}, (std::string(function) + ": " + cudaGetErrorName(what) + (*why ? ", " : "") + why).c_str());
  return what;
}

Launching::Launching(const char* kernel, Place at, const Config& how, bool cooperative, bool asks)
    : kernel(kernel), at(at), how(how), cooperative(cooperative), asks(asks), outer(begun) {
  if (simt::launching) refuse(placed("dynamic parallelism, a launch by a kernel, is not emulated", at).c_str());
  begun = this;
}
Launching::~Launching() {
  if (call) destroy(call);
  if (begun == this) begun = outer;
}

bool is_asked() { return begun && begun->asks && !launch_of_call(); }
Launching* launch_of_call() {
  if (launching || !begun || begun->called) table->asking = calls_here(), refuse("a kernel is called as a function, without <<< >>>");
  begun->called = true;
  begun->most_threads = std::exchange(bounds_told, 0);
  return begun->asks ? nullptr : begun;
}

cudaError_t run_launch() {
  LOCKED;
  const Launching& l = *std::exchange(begun, begun->outer);
  if (!l.thread) refuse(placed((std::string(l.kernel) + " is launched, but the definition of no such kernel was found").c_str(), l.at).c_str());
  if (sticky != cudaSuccess || late != cudaSuccess) return sticky;
  cudaError_t error;
  if (const char* why = wrong_with(l, error)) {
    note_launch(error, why, l.at, l.kernel);
    return last = error;
  }
  launched = {l.kernel, l.at};
  passed = l.pointers;
  parameters = reinterpret_cast<uintptr_t>(l.call), parameters_end = parameters + l.bytes;
  table->running_line = l.at.line;
  set_file(table->running_file, l.at.file);
  snprintf(table->running, sizeof table->running, "%s", placed(l.kernel, l.at).c_str());
  ++table->launches;
  fflush(stdout);
  judge_arguments(l.call, l.bytes, l.kernel, l.at);
  begin_work(l.how.stream, (std::string("kernel ") + l.kernel).c_str(), calls_here());
  run(l);
  table->running[0] = 0;
  return cudaSuccess;
}

// An algorithm of Thrust's that the host's thread runs for the device, in a stream.
thread_local int acting;
const char* acting_as;
static std::optional<Open> acting_opened;
extern "C" SIMT_API void simt_algorithm_begins(const char* name, cudaStream_t s) {
  if (launching || acting++) return;
  api_lock.lock();
  acting_as = name;
  begin_work(s, name, calls_here());
  acting_opened.emplace();
}
extern "C" SIMT_API void simt_algorithm_ends(cudaStream_t s, bool waits) {
  if (launching || --acting) return;
  acting_opened.reset();
  if (waits) host_waits(s);
  api_lock.unlock();
}

// Of a call's text: what is launched.
const char* first_argument(const char* call) {
  static auto& known = *new std::set<std::string>;  // never destroyed
  int depth = 0;
  const char* end = call;
  for (; *end && (depth || *end != ','); ++end) depth += !!strchr("([{<", *end) - !!strchr(")]}>", *end);
  std::lock_guard<std::recursive_mutex> locked(api_lock);
  return known.emplace(call, end).first->c_str();
}

// ---- the host's own signals ------------------------------------------------------------------------------------------

namespace {
// The innermost instruction of the program itself: libraries have no lines.
uintptr_t innermost(const ucontext_t* context) {
  auto pc = static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
  if (in_library(pc)) return pc + 1;
  auto* stack = reinterpret_cast<const uintptr_t*>(context->uc_mcontext.gregs[REG_RSP]);
  for (int i = 0; i < 512; ++i)
    if (in_library(stack[i])) return stack[i];
  return 0;
}

void on_host_signal(int number, siginfo_t* info, void* context) {
  uintptr_t pc = innermost(static_cast<ucontext_t*>(context));
  auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (number == SIGSEGV && memory_at(at).kind == Kind::device && judged(at, 1, by_host, pc)) return;  // it goes on
  report(Misuse::host_crash, pc, Memory{}, strsignal(number));
  signal(number, SIG_DFL);
  raise(number);
}

__attribute__((constructor)) void watch_host() {
  struct sigaction action {};
  action.sa_sigaction = on_host_signal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

__attribute__((destructor)) void at_exit() {
  if (sticky == cudaSuccess && late == cudaSuccess) report_leaks();
}
}  // namespace
}  // namespace simt

// assert, as the C library's own header has it.
extern "C" SIMT_API void __assert_fail(const char* condition, const char* file, unsigned line, const char* function) noexcept {
  if (simt::launching && simt::S.current >= 0)
    simt::fail(simt::Trouble::trap, {file, static_cast<int>(line)}, (std::string("assertion failed: ") + condition).c_str());
  std::string failed = std::string("assertion failed: ") + condition;
  auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  simt::report(simt::Misuse::host_crash, caller, simt::Memory{}, failed.c_str());
  using Real = void (*)(const char*, const char*, unsigned, const char*);
  reinterpret_cast<Real>(dlsym(RTLD_NEXT, "__assert_fail"))(condition, file, line, function);
  abort();
}

// A vector access at an address that is no multiple of its size. The host's processor allows that.
extern "C" SIMT_API void __ubsan_handle_type_mismatch_v1(void* data, uintptr_t address) {
  struct Described {
    const char* file;
    uint32_t line, column;
  };
  const auto* at = static_cast<const Described*>(data);
  if (!simt::launching || simt::S.current < 0) return;
  char text[64] = "null";
  if (address) snprintf(text, sizeof text, "%#zx", static_cast<size_t>(address));
  simt::fail(simt::Trouble::misaligned, {at->file, static_cast<int>(at->line)}, text);
}

API cudaError_t cudaGetLastError() {
  LOCKED;
  if (simt::sticky != cudaSuccess) return simt::sticky;
  return std::exchange(simt::last, cudaSuccess);
}
API cudaError_t cudaPeekAtLastError() {
  LOCKED;
  return simt::sticky != cudaSuccess ? simt::sticky : simt::last;
}
API cudaError_t cudaDeviceReset() {
  LOCKED;
  cudaError_t stands = simt::standing();
  if (stands == cudaSuccess) simt::report_leaks();
  simt::Open opened;
  simt::release_all();
  simt::sticky = simt::last = cudaSuccess;
  return cudaSuccess;
}

// ---- the heap, as kernels have it ------------------------------------------------------------------------------------

// The emulator allocates, too, while a kernel runs.
static bool by_kernel(uintptr_t pc) { return simt::launching && simt::S.current >= 0 && simt::in_library(pc); }
static void* heap(size_t bytes, uintptr_t pc) {
  std::lock_guard<std::recursive_mutex> locked(simt::kernel_lock);
  return simt::allocate(bytes, simt::Kind::heap, pc);
}
static void heap_free(void* at, uintptr_t pc) {
  std::lock_guard<std::recursive_mutex> locked(simt::kernel_lock);
  simt::release(at, false, pc);
}
API void* __wrap_malloc(size_t bytes) { return by_kernel(CALLER) ? heap(bytes, CALLER) : malloc(bytes); }
API void __wrap_free(void* at) { return by_kernel(CALLER) ? heap_free(at, CALLER) : free(at); }
SIMT_API void* operator new(size_t bytes) {
  if (void* got = by_kernel(CALLER) ? heap(bytes, CALLER) : malloc(bytes ? bytes : 1)) return got;
  throw std::bad_alloc();
}
SIMT_API void* operator new[](size_t bytes) { return by_kernel(CALLER) ? heap(bytes, CALLER) : operator new(bytes); }
SIMT_API void operator delete(void* at) noexcept { by_kernel(CALLER) ? heap_free(at, CALLER) : free(at); }
SIMT_API void operator delete[](void* at) noexcept { by_kernel(CALLER) ? heap_free(at, CALLER) : free(at); }
SIMT_API void operator delete(void* at, size_t) noexcept { by_kernel(CALLER) ? heap_free(at, CALLER) : free(at); }
SIMT_API void operator delete[](void* at, size_t) noexcept { by_kernel(CALLER) ? heap_free(at, CALLER) : free(at); }
