// Findings, grouped by the two instructions, in memory that the process which started this one reads.
#include "watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace simt {
Table* table;
std::recursive_mutex api_lock, kernel_lock;

namespace {
bool any_undefined;  // value, so far
constexpr uint32_t most = sizeof Table::records / sizeof(Record);
using Key = std::tuple<int32_t, uint64_t, uint64_t, int32_t, uint64_t, bool, std::string>;
std::map<Key, uint32_t>& known() {
  static auto& made = *new std::map<Key, uint32_t>;  // never destroyed
  return made;
}

void copy_text(char* to, size_t room, const char* from) { snprintf(to, room, "%s", from ? from : ""); }

__attribute__((noinline)) void add(const Fault& f, const Memory& m, bool harmless) {
  Record& r = table->records[table->count];
  r.fault = f, r.memory = m, r.count = 1, r.harmless = harmless;
  if (f.thread < 0) r.by_way_of = calls_here();
  if (S.active) {
    memcpy(r.grid, S.launch->grid, sizeof r.grid);
    memcpy(r.block, S.launch->block, sizeof r.block);
    copy_text(r.kernel, sizeof r.kernel, launched.kernel);
    set_file(r.launch_file, launched.at.file);
    r.launch_line = launched.at.line;
  }
  ++table->count;
}
}  // namespace

// What a function of CUB's does to arrays is told of by the line that calls it.
static Fault placed(Fault f) {
  if (!S.active || f.thread < 0 || !launched.kernel || strncmp(launched.kernel, "cub::Device", 11)) return f;
  f.pc = 0;
  set_place(f, launched.at);
  return f;
}

// What tells apart launches of one line that fail, but for numbers in it.
static std::string reason_of(const Fault& f) {
  if (f.trouble == static_cast<int32_t>(Misuse::host_address)) return f.text;
  std::string text = f.trouble == static_cast<int32_t>(Misuse::api_error) ? f.text : "";
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }), text.end());
  return text;
}

void note(const Fault& fault, const Memory& m, bool harmless) {
  std::lock_guard<std::recursive_mutex> locked(kernel_lock);
  Fault f = placed(fault);
  auto trouble = static_cast<Trouble>(f.trouble);
  any_undefined |= trouble == Trouble::undefined_lane || trouble == Trouble::undefined_result;
  auto [place, is_new] =
      known().try_emplace(Key{f.trouble, f.pc, f.other_pc, f.line, m.made_pc, harmless, reason_of(f)}, table->count);
  if (!is_new) ++table->records[place->second].count;
  else if (table->count < most) add(f, m, harmless);
  else ++table->lost, known().erase(place);
}

// Of a launch.
void found(const Fault& f, bool harmless) {
  std::lock_guard<std::recursive_mutex> locked(kernel_lock);
  note(f, memory_of_region(f.region, f.offset), harmless);
}

__attribute__((noinline)) void report(Misuse what, uintptr_t pc, const Memory& m, const char* text, size_t bytes, bool writes) {
  Fault f{};
  f.trouble = static_cast<int32_t>(what);
  f.region = f.other = -1;
  f.offset = m.offset;
  f.bytes = static_cast<int32_t>(bytes);
  f.writes = writes;
  f.thread = S.active ? S.current : -1;
  f.block = static_cast<uint32_t>(S.block);
  f.pc = relative(reinterpret_cast<void*>(pc));
  copy_text(f.text, sizeof f.text, text);
  note(f, m, false);
}

// By which it is known whether that depends on the value (kernels/programs/run.py).
void host_reads(const void* at, size_t bytes) {
  if (!any_undefined) return;
  auto* byte = static_cast<const unsigned char*>(at);
  for (size_t i = 0; i < bytes; ++i) table->outcome = (table->outcome ^ byte[i]) * 0x100000001b3u;  // FNV-1a
}

// What is not emulated: the program ends, and the command says why.
void refuse(const char* text) {
  copy_text(table->refused, sizeof table->refused, text);
  fflush(nullptr);
  _exit(2);
}

void refuse_at(const char* what, Place at) {
  const char* slash = strrchr(at.file, '/');
  char text[sizeof table->refused];
  snprintf(text, sizeof text, "%s is not emulated (%s, line %d)", what, slash ? slash + 1 : at.file, at.line);
  refuse(text);
}

void open_table() {
  const char* number = getenv("KERNEL_ASSAY_FINDINGS");
  void* got = MAP_FAILED;
  if (number) got = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(number), 0);
  if (got == MAP_FAILED) got = reserve(sizeof(Table), "findings");
  table = static_cast<Table*>(got);
  if (const char* line = getenv("KERNEL_ASSAY_UNDEFINED")) undefined_line = atoi(line);
}
}  // namespace simt
