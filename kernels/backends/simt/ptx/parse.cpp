// The text of an asm statement becomes a program.
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

#include <map>
#include <unordered_map>

namespace simt::ptx {
namespace {
const std::map<std::string_view, Type> types = {
    {"pred", Type::pred}, {"b8", Type::b8}, {"b16", Type::b16}, {"b32", Type::b32}, {"b64", Type::b64}, {"u8", Type::u8},
    {"u16", Type::u16}, {"u32", Type::u32}, {"u64", Type::u64}, {"s8", Type::s8}, {"s16", Type::s16}, {"s32", Type::s32},
    {"s64", Type::s64}, {"f16", Type::f16}, {"f16x2", Type::f16x2}, {"bf16", Type::bf16}, {"bf16x2", Type::bf16x2},
    {"tf32", Type::tf32}, {"f32", Type::f32}, {"f64", Type::f64}, {"e4m3", Type::e4m3}, {"e5m2", Type::e5m2},
    {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2},
};
const char* const specials[] = {
    "tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "lanemask_eq", "lanemask_lt",
    "lanemask_le", "lanemask_gt", "lanemask_ge", "clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo",
    "globaltimer_hi", "dynamic_smem_size", "total_smem_size",
};

bool is_word(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

class Parser {
 public:
  Parser(const char* text, int operands, Place place) : at(text), place(place), operands(operands) {
    made.registers = operands;
    scopes.emplace_back();
  }

  Program run() {
    while (skip(), *at) statement();
    for (Instruction& i : made.code)
      if (i.name == "bra") jump(i);
    return std::move(made);
  }

 private:
  const char* at;
  Place place;
  int operands;
  Program made;
  std::vector<std::map<std::string, int>> scopes;  // registers by name
  std::map<std::string, int> labels;
  const char* begin = nullptr;  // of the statement

  [[noreturn]] void refuse() {
    const char* name = begin + (*begin == '@' ? strcspn(begin, " \t") : 0);
    name += strspn(name, " \t");
    unsupported(std::string(name, strcspn(name, " \t\n;")), place);
  }
  void skip() {
    for (;; ++at) {
      if (at[0] == '/' && at[1] == '/') at += strcspn(at, "\n");
      else if (at[0] == '/' && at[1] == '*') at = strstr(at, "*/") ? strstr(at, "*/") + 1 : at + strlen(at) - 1;
      if (!*at || !isspace(static_cast<unsigned char>(*at))) return;
    }
  }
  bool take(char c) {
    skip();
    if (*at != c) return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  std::string word() {
    skip();
    const char* from = at;
    while (is_word(*at)) ++at;
    if (at[0] == '%' && at[1] == '=') at += 2;  // a number of its own for each asm statement: labels are anyway
    return {from, at};
  }

  void statement() {
    begin = at;
    if (take(';')) return;
    if (take('{')) return scopes.emplace_back(), void();
    if (take('}')) return scopes.size() > 1 ? scopes.pop_back() : refuse();
    if (*at == '.') return declaration();
    Instruction i;
    if (take('@')) {
      i.guard_negated = take('!');
      Operand p = operand();
      if (p.kind != Operand::is_register) refuse();
      i.guard = p.reg;
      skip();
    }
    const char* from = at;
    i.name = word();
    if (i.guard < 0 && take(':')) return labels[i.name] = static_cast<int>(made.code.size()), void();
    modifiers(i);
    i.text.assign(from, at);
    while (skip(), *at && *at != ';' && *at != '}') {
      i.operands.push_back(operand());
      if (take('|')) i.operands.back().parts.push_back(operand());
      if (!take(',')) break;
    }
    skip();
    if (*at && *at != '}') expect(';');
    finish(i);
  }

  void modifiers(Instruction& i) {
    while (*at == '.') {
      const char* from = ++at;
      while (is_word(*at) || (at[0] == ':' && at[1] == ':' && ++at)) ++at;
      std::string_view name(from, at - from);
      i.words.emplace_back(name);
      auto found = types.find(name);
      if (found == types.end()) continue;
      if (i.type == Type::none) i.type = found->second;
      else if (i.from == Type::none) i.from = found->second;
    }
  }

  void finish(Instruction& i) {
    i.flushes = i.has("ftz"), i.saturates = i.has("sat") || i.has("satfinite"), i.keeps_nan = i.has("NaN");
    i.rounding = i.has("rz") ? FE_TOWARDZERO : i.has("rm") ? FE_DOWNWARD : i.has("rp") ? FE_UPWARD : -1;
    for (Operand& o : i.operands)
      if (o.kind == Operand::is_real) constant(o, i.from == Type::none || i.name == "set" ? i.type : i.from);
    for (auto find : {number_handler, memory_handler, warp_handler, matrix_handler})
      if (!i.run) i.run = find(i);
    if (!i.run) refuse();
    made.code.push_back(std::move(i));
  }
  void constant(Operand& o, Type type) {
    o.kind = Operand::is_number;
    if (type == Type::f64) o.number = bits<uint64_t>(o.value);
    else if (type == Type::f32) o.number = bits<uint32_t>(static_cast<float>(o.value));
    else if (type == Type::none || type == Type::b64) o.number = 0;  // the fraction of a cache's policy
    else refuse();
  }

  void jump(Instruction& i) {
    auto found = i.operands.empty() ? labels.end() : labels.find(i.operands[0].text);
    if (found == labels.end()) unsupported(i.text, place);
    i.target = found->second;
  }

  void declaration() {
    ++at;
    if (word() != "reg") refuse();
    skip();
    while (*at == '.') ++at, word(), skip();
    do {
      std::string name = (take('%'), take('%'), word());
      if (name.empty()) refuse();
      if (!take('<')) {
        scopes.back()[name] = made.registers++;
        continue;
      }
      for (int n = 0, count = atoi(word().c_str()); n < count; ++n) scopes.back()[name + std::to_string(n)] = made.registers++;
      expect('>');
    } while (take(','));
    expect(';');
    if (made.registers > 1024) refuse();
  }

  Operand operand() {
    skip();
    Operand o;
    if (take('!')) {
      o = operand();
      o.negated = !o.negated;
      return o;
    }
    if (take('{')) return group();
    if (take('[')) return address();
    if (*at == '-' || isdigit(static_cast<unsigned char>(*at))) return number();
    if (*at == '%') {
      at += at[1] == '%' ? 2 : 1;
      if (isdigit(static_cast<unsigned char>(*at)) && at[-2] != '%') return given();
    }
    return named(word());
  }
  Operand given() {
    Operand o;
    o.kind = Operand::is_register;
    o.reg = static_cast<int>(strtol(at, const_cast<char**>(&at), 10));
    if (o.reg >= operands) refuse();
    return o;
  }
  Operand named(const std::string& name) {
    Operand o;
    o.text = name;
    if (name == "_") return o.kind = Operand::is_sink, o;
    if (name == "WARP_SZ") return o.kind = Operand::is_number, o.number = 32, o;
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto found = scope->find(name); found != scope->end()) return o.kind = Operand::is_register, o.reg = found->second, o;
    for (int n = 0; n < static_cast<int>(std::size(specials)); ++n)
      if (name == specials[n]) return special(n);
    if (name.empty()) refuse();
    return o.kind = Operand::is_name, o;
  }
  Operand special(int number) {
    Operand o;
    o.kind = Operand::is_special, o.reg = number;
    if (number > static_cast<int>(Special::nctaid)) return o;
    if (!take('.')) refuse();
    o.axis = *at++ - 'x';
    if (o.axis < 0 || o.axis > 2) refuse();
    return o;
  }
  Operand group() {
    Operand o;
    o.kind = Operand::is_group;
    do o.parts.push_back(operand());
    while (take(','));
    expect('}');
    return o;
  }
  Operand address() {
    Operand o = operand();
    if (o.kind != Operand::is_register && o.kind != Operand::is_number) refuse();
    if (o.kind == Operand::is_register) o.number = 0;
    o.kind = Operand::is_address;
    for (;;) {
      bool minus = take('-');
      if (!minus && !take('+')) break;
      Operand more = operand();
      if (more.kind == Operand::is_register && o.index < 0 && !minus) o.index = more.reg;
      else if (more.kind == Operand::is_number) o.number += minus ? -more.number : more.number;
      else refuse();
    }
    expect(']');
    return o;
  }
  Operand number() {
    Operand o;
    o.kind = Operand::is_number;
    bool minus = *at == '-';
    const char* from = at += minus;
    bool is_bits = from[0] == '0' && strchr("fFdD", from[1]) && from[1];
    while (is_word(*at) || *at == '.' || ((*at == '-' || *at == '+') && (at[-1] == 'e' || at[-1] == 'E') && from[1] != 'x')) ++at;
    std::string text(from, at);
    if (is_bits) {
      o.number = strtoull(text.c_str() + 2, nullptr, 16);
      if (minus) o.number ^= uint64_t{1} << (text[1] == 'f' || text[1] == 'F' ? 31 : 63);
    } else if (text.find('.') != std::string::npos) {
      o.kind = Operand::is_real;
      o.value = strtod(text.c_str(), nullptr) * (minus ? -1 : 1);
    } else {
      bool binary = text.size() > 1 && (text[1] == 'b' || text[1] == 'B') && text[0] == '0';
      o.number = binary ? strtoull(text.c_str() + 2, nullptr, 2) : strtoull(text.c_str(), nullptr, 0);
      if (minus) o.number = -o.number;
    }
    return o;
  }
};
}  // namespace

// Kept by where the text lies; another library may lie there later.
const Program& program_of(const char* text, int operands, Place at) {
  static SIMT_EACH_MADE std::unordered_map<const char*, Program> known;
  Program& program = known[text];
  if (program.text.empty() || program.text != text) {
    program = {};
    program = Parser(text, operands, at).run();
    program.text = *text ? text : " ";
  }
  return program;
}
}  // namespace simt::ptx
