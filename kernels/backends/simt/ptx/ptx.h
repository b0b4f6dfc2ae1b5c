// Inline PTX: the text of an asm statement becomes a program when a thread first comes to it, and is interpreted. Names and
// meanings are those of NVIDIA's "PTX ISA"; docs/inline-ptx.md says which instructions there are.
#pragma once
#include "../half.h"
#include "../packed.h"
#include "../atomics.h"
#include "../runtime/happens.h"

#include <string>
#include <string_view>
#include <vector>

namespace simt::ptx {
enum class Type : uint8_t {
  none, pred, b8, b16, b32, b64, u8, u16, u32, u64, s8, s16, s32, s64, f16, f16x2, bf16, bf16x2, tf32, f32, f64, e4m3, e5m2, e4m3x2, e5m2x2,
};
constexpr int bytes_of(Type t) {
  constexpr int sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 2, 4, 4, 4, 8, 1, 1, 2, 2};
  return sizes[static_cast<int>(t)];
}
constexpr bool is_signed(Type t) { return t >= Type::s8 && t <= Type::s64; }
constexpr bool is_real(Type t) { return t >= Type::f16; }

enum class Special : uint8_t {
  tid, ntid, ctaid, nctaid, laneid, warpid, nwarpid, smid, nsmid, gridid, lanemask_eq, lanemask_lt, lanemask_le, lanemask_gt,
  lanemask_ge, clock, clock_hi, clock64, globaltimer, globaltimer_lo, globaltimer_hi, dynamic_smem_size, total_smem_size,
};

struct Operand {
  enum Kind : uint8_t { none, is_register, is_number, is_real, is_special, is_address, is_group, is_sink, is_name } kind = none;
  bool negated = false;   // !p
  int reg = -1;           // a register; a special one, and which of x, y, z; the base of an address
  int axis = 0;
  int index = -1;         // a register that is added to an address
  uint64_t number = 0;    // a constant, or what is added to an address
  double value = 0;
  std::vector<Operand> parts;  // {a, b}; of d|p the second one
  std::string text;
};

struct Machine;
struct Instruction;
struct Args {
  const Instruction& i;
  uint64_t v[4];
};
using Value = uint64_t (*)(const Args&);
using Handler = void (*)(Machine&, const Instruction&);

struct Instruction {
  std::string text, name;
  std::vector<std::string> words;  // what stands behind the dots
  std::vector<Operand> operands;
  Type type = Type::none, from = Type::none;  // the first that is named, and the second
  Handler run = nullptr;
  Value value = nullptr;
  int guard = -1, target = -1;
  bool guard_negated = false;
  bool flushes = false, saturates = false, keeps_nan = false;  // .ftz, .sat, .NaN
  int rounding = -1;  // a mode of the processor; -1: to nearest
  int detail = 0;     // what its family has worked out beforehand
  Type b = Type::none, c = Type::none;  // of a matrix product's operands; a's is `from`
  int k = 0;
  bool has(std::string_view word) const {
    for (const auto& w : words)
      if (w == word) return true;
    return false;
  }
};

struct Program {
  std::string text;
  std::vector<Instruction> code;
  int registers = 0;
};

// What a thread runs it with.
struct Machine {
  uint64_t* registers;
  Place at;
  const void* caller;
  size_t next;

  uint64_t get(const Operand& o) const;
  void put(const Operand& o, uint64_t value, Type type) const;
  uint64_t address(const Operand& o) const;
};

// Of whatever is not emulated.
uintptr_t shared_pointer(uint64_t address);  // of what 32 bits say of it
void touch(const Machine& m, uintptr_t at, size_t bytes, int how);  // judges an access that is about to be made
[[noreturn]] void unsupported(const std::string& instruction, Place at);

// Each finds the handler of an instruction of its family, or returns null (numbers.cpp, memory.cpp, warps.cpp, matrices.cpp).
Handler number_handler(Instruction& i);
Handler memory_handler(Instruction& i);
Handler warp_handler(Instruction& i);
Handler matrix_handler(Instruction& i);
Value conversion(const Instruction& i);
double real_of(uint64_t raw, Type t);                    // a float of any type
uint64_t raw_of(double x, Type t, const Instruction& i);  // rounded as it says
Value arithmetic(std::string_view name, Type type);

const Program& program_of(const char* text, int operands, Place at);
}  // namespace simt::ptx
