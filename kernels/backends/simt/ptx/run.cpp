// Runs a program: registers, special ones, addresses, and what is emulated of no family.
#include "ptx.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

namespace simt::ptx {
[[noreturn]] __attribute__((noinline)) void unsupported(const std::string& instruction, Place at) {
  char text[200];
  snprintf(text, sizeof text, "the PTX instruction %s", instruction.c_str());
  for (char* c = text; *c; ++c)
    if (*c == '\n' || *c == '\t') *c = ' ';
  if (watcher) watcher->refused(text, at);
  fail(Trouble::unsupported, at, text);
}

namespace {
uint64_t axis_of(const uint3& at, int axis) { return axis == 0 ? at.x : axis == 1 ? at.y : at.z; }
uint64_t axis_of(const dim3& at, int axis) { return axis == 0 ? at.x : axis == 1 ? at.y : at.z; }
uint64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}
uint64_t cycles() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return nanoseconds();
#endif
}

uint64_t special(Special which, int axis) {
  int lane = lane_of(S.current);
  switch (which) {
    case Special::tid: return axis_of(thread_index, axis);
    case Special::ntid: return axis_of(block_extent, axis);
    case Special::ctaid: return axis_of(block_index, axis);
    case Special::nctaid: return axis_of(grid_extent, axis);
    case Special::laneid: return lane;
    case Special::warpid: return warp_of(S.current);
    case Special::nwarpid: return S.warp_count;
    case Special::smid: return S.block % processors;
    case Special::nsmid: return processors;
    case Special::gridid: return 1;
    case Special::lanemask_eq: return bit(lane);
    case Special::lanemask_lt: return bit(lane) - 1;
    case Special::lanemask_le: return bit(lane) | (bit(lane) - 1);
    case Special::lanemask_gt: return ~(bit(lane) | (bit(lane) - 1)) & 0xffffffffu;
    case Special::lanemask_ge: return ~(bit(lane) - 1) & 0xffffffffu;
    case Special::clock: return cycles() & 0xffffffffu;
    case Special::clock_hi: return cycles() >> 32;
    case Special::clock64: return cycles();
    case Special::globaltimer: return nanoseconds();
    case Special::globaltimer_lo: return nanoseconds() & 0xffffffffu;
    case Special::globaltimer_hi: return nanoseconds() >> 32;
    case Special::dynamic_smem_size: return S.launch->dynamic_shared;
    default: return S.launch->dynamic_shared + S.launch->static_shared;
  }
}
}  // namespace

uint64_t Machine::get(const Operand& o) const {
  switch (o.kind) {
    case Operand::is_register: return o.negated ? !(registers[o.reg] & 1) : registers[o.reg];
    case Operand::is_special: return special(static_cast<Special>(o.reg), o.axis);
    default: return o.number;
  }
}
void Machine::put(const Operand& o, uint64_t value, Type type) const {
  if (o.kind != Operand::is_register) return;
  int bytes = bytes_of(type);
  registers[o.reg] = bytes < 8 ? value & ((uint64_t{1} << 8 * bytes) - 1) : value;
}
uint64_t Machine::address(const Operand& o) const {
  return (o.reg >= 0 ? registers[o.reg] : 0) + (o.index >= 0 ? registers[o.index] : 0) + o.number;
}
}  // namespace simt::ptx

namespace simt {
// Small arrays on the thread's own stack; the frame is the smaller the fewer registers there are.
void ptx_run(const char* text, uint64_t* operands, int count, Place at) {
  const ptx::Program& program = ptx::program_of(text, count, at);
  auto* registers = static_cast<uint64_t*>(__builtin_alloca(sizeof(uint64_t) * (program.registers + 1)));
  memcpy(registers, operands, sizeof(uint64_t) * count);
  memset(registers + count, 0, sizeof(uint64_t) * (program.registers - count));
  ptx::Machine m{registers, at, __builtin_return_address(0), 0};
  size_t steps = 0;
  while (m.next < program.code.size()) {
    const ptx::Instruction& i = program.code[m.next++];
    if (i.guard >= 0 && (registers[i.guard] & 1) == i.guard_negated) continue;
    i.run(m, i);
    if (i.target >= 0 && ++steps % 64 == 0) step_aside();  // a loop may wait for another thread
  }
  memcpy(operands, registers, sizeof(uint64_t) * count);
}
}  // namespace simt
