// Arithmetic, bits, comparisons and moves: instructions that know nothing but their operands.
#include "ptx.h"

#include <map>

namespace simt::ptx {
namespace {
// ---- numbers as registers hold them, and what is computed in ---------------------------------------------------------

struct Half {};
struct Brain {};
template <class T>
struct Number {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>, T>;
  static T of(uint64_t raw) {
    T x;
    memcpy(&x, &raw, sizeof x);
    return x;
  }
  static uint64_t raw(T x) {
    uint64_t to = 0;
    memcpy(&to, &x, sizeof x);
    return to;
  }
};
template <>
struct Number<Half> {
  static float of(uint64_t raw) { return __half2float(__half(__half_raw{static_cast<unsigned short>(raw)})); }
  static uint64_t raw(double x) { return static_cast<__half_raw>(__double2half(x)).x; }
};
template <>
struct Number<Brain> {
  static float of(uint64_t raw) { return bits<float>(static_cast<uint32_t>(raw) << 16); }
  static uint64_t raw(double x) { return static_cast<__nv_bfloat16_raw>(__double2bfloat16(x)).x; }
};
template <class T>
constexpr bool integral = std::is_integral_v<T>;

template <class F>
F flushed(F x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(F{0}, x) : x; }
template <class T>
auto get(const Args& a, int n) {
  auto x = Number<T>::of(a.v[n]);
  if constexpr (std::is_same_v<T, float>)
    if (a.i.flushes) x = flushed(x);
  return x;
}
template <class T, class X>
uint64_t give(const Args& a, X x) {
  if constexpr (!integral<T>) {
    if (a.i.saturates) x = x > 0 ? x < 1 ? x : X{1} : X{0};
    if constexpr (std::is_same_v<T, float>)
      if (a.i.flushes) x = flushed(x);
  }
  return Number<T>::raw(x);
}

#define OP(NAME, EXPRESSION)                                                              \
  template <class T>                                                                      \
  struct NAME {                                                                           \
    static uint64_t of(const Args& a) {                                                   \
      [[maybe_unused]] auto x = get<T>(a, 0), y = get<T>(a, 1), z = get<T>(a, 2);         \
      return give<T>(a, EXPRESSION);                                                      \
    }                                                                                     \
  };
template <class T>
T clipped(__int128 x) {
  __int128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return static_cast<T>(x < low ? low : x > high ? high : x);
}
template <class T, class X>
auto summed(const Args& a, X x, X y, int sign) {
  if constexpr (!integral<T>) return x + sign * y;
  else if (a.i.saturates) return clipped<T>(static_cast<__int128>(x) + sign * static_cast<__int128>(y));
  else return static_cast<T>(static_cast<uint64_t>(x) + sign * static_cast<uint64_t>(y));
}
OP(Add, (summed<T>(a, x, y, 1)))
OP(Sub, (summed<T>(a, x, y, -1)))
template <class T, class X>
X quotient(X x, X y) {
  if constexpr (integral<T>)
    if (!y) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T> && integral<T>)
    if (y == T(-1)) return static_cast<T>(-static_cast<uint64_t>(x));
  return x / y;
}
OP(Mul, x * y)
OP(Div, (quotient<T>(x, y)))
OP(Rem, static_cast<T>(!y ? x : y == T(-1) ? T(0) : x % y))
OP(Neg, static_cast<decltype(x)>(-x))
OP(Abs, x < 0 ? static_cast<decltype(x)>(-x) : x == 0 ? decltype(x){} : x)
template <class T, class X>
X least(const Args& a, X x, X y, bool most) {
  if constexpr (integral<T>) return (y < x) != most ? y : x;
  else {
    if (a.i.keeps_nan && (x != x || y != y)) return std::numeric_limits<X>::quiet_NaN();
    return most ? greatest_number(x, y) : least_number(x, y);
  }
}
OP(Min, (least<T>(a, x, y, false)))
OP(Max, (least<T>(a, x, y, true)))
template <class T, class X>
double fused_of(X x, X y, X z) { return fused(x, y, z); }
template <class T>
struct Fma {
  static uint64_t of(const Args& a) {
    auto x = get<T>(a, 0), y = get<T>(a, 1), z = get<T>(a, 2);
    if constexpr (std::is_same_v<T, float>) return give<T>(a, fmaf(x, y, z));
    else if constexpr (std::is_same_v<T, double>) return give<T>(a, ::fma(x, y, z));
    else {
      double found = fused(x, y, z);
      return give<T>(a, a.i.has("relu") && found < 0 ? 0.0 : found);
    }
  }
};
OP(Rcp, 1 / x)
OP(Sqrt, std::sqrt(x))
OP(Rsqrt, 1 / std::sqrt(x))
OP(Exp2, std::exp2(x))
OP(Log2, std::log2(x))
OP(Sin, std::sin(x))
OP(Cos, std::cos(x))
OP(Tanh, std::tanh(x))
OP(Copysign, std::copysign(y, x))
OP(And, static_cast<T>(x & y))
OP(Or, static_cast<T>(x | y))
OP(Xor, static_cast<T>(x ^ y))
OP(Not, static_cast<T>(a.i.type == Type::pred ? !x : ~x))
OP(Cnot, static_cast<T>(!x))
template <class T>
struct Shl {
  static uint64_t of(const Args& a) {
    auto by = static_cast<uint32_t>(a.v[1]);
    return Number<T>::raw(by < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(get<T>(a, 0)) << by) : T(0));
  }
};
template <class T>
struct Shr {
  static uint64_t of(const Args& a) {
    uint32_t by = static_cast<uint32_t>(a.v[1]), most = 8 * sizeof(T) - 1;
    T x = get<T>(a, 0);
    if (by <= most) return Number<T>::raw(static_cast<T>(x >> by));
    return Number<T>::raw(static_cast<T>(x < 0 ? -1 : 0));
  }
};
// The product of integers: its low or high half, or all of it; and a sum with c.
template <class T>
struct Product {
  static uint64_t of(const Args& a) {
    using Whole = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    Whole both = static_cast<Whole>(get<T>(a, 0)) * static_cast<Whole>(get<T>(a, 1));
    bool sums = a.i.name[1] == 'a';
    if (a.i.has("wide")) return static_cast<uint64_t>(both) + (sums ? a.v[2] : 0);
    uint64_t part = static_cast<uint64_t>(a.i.has("hi") ? both >> (8 * sizeof(T)) : both);
    return Number<T>::raw(static_cast<T>(part + (sums ? static_cast<uint64_t>(get<T>(a, 2)) : 0)));
  }
};
template <class T>
struct Count {
  static uint64_t of(const Args& a) { return __builtin_popcountll(static_cast<std::make_unsigned_t<T>>(get<T>(a, 0))); }
};
template <class T>
struct LeadingZeros {
  static uint64_t of(const Args& a) { return sizeof(T) == 8 ? __clzll(a.v[0]) : __clz(static_cast<int>(a.v[0])); }
};
template <class T>
struct Reversed {
  static uint64_t of(const Args& a) { return sizeof(T) == 8 ? __brevll(a.v[0]) : __brev(static_cast<unsigned>(a.v[0])); }
};
// The highest bit that is not the sign; .shiftamt: by how much to shift it to the top.
template <class T>
struct Found {
  static uint64_t of(const Args& a) {
    T x = get<T>(a, 0);
    auto rest = static_cast<std::make_unsigned_t<T>>(x < 0 ? ~x : x);
    if (!rest) return ~0u;
    int at = 63 - __builtin_clzll(rest);
    return a.i.has("shiftamt") ? 8 * sizeof(T) - 1 - at : at;
  }
};
template <class T>
struct Extracted {
  static uint64_t of(const Args& a) {
    constexpr int width = 8 * sizeof(T);
    T x = get<T>(a, 0);
    int from = a.v[1] & 255, count = a.v[2] & 255;
    bool negative = std::is_signed_v<T> && count && (x >> std::min(from + count - 1, width - 1) & 1);
    uint64_t found = 0;
    for (int n = 0; n < width; ++n)
      found |= static_cast<uint64_t>(n < count && from + n < width ? x >> (from + n) & 1 : negative) << n;
    return found;
  }
};
template <class T>
struct Inserted {
  static uint64_t of(const Args& a) {
    constexpr int width = 8 * sizeof(T);
    int from = a.v[2] & 255, count = a.v[3] & 255;
    uint64_t found = a.v[1];
    for (int n = 0; n < count && from + n < width; ++n)
      found = (found & ~(uint64_t{1} << (from + n))) | (a.v[0] >> n & 1) << (from + n);
    return found;
  }
};

// Of both halves of a word.
template <template <class> class F, class T>
struct Both {
  static uint64_t of(const Args& a) {
    Args low{a.i, {}}, high{a.i, {}};
    for (int n = 0; n < 4; ++n) low.v[n] = a.v[n] & 0xffff, high.v[n] = a.v[n] >> 16 & 0xffff;
    return F<T>::of(low) | F<T>::of(high) << 16;
  }
};
template <template <class> class F>
Value real(Type t) {
  switch (t) {
    case Type::f16: return F<Half>::of;
    case Type::bf16: return F<Brain>::of;
    case Type::f16x2: return Both<F, Half>::of;
    case Type::bf16x2: return Both<F, Brain>::of;
    case Type::f32: return F<float>::of;
    case Type::f64: return F<double>::of;
    default: return nullptr;
  }
}
template <template <class> class F>
Value integer(Type t) {
  switch (t) {
    case Type::pred: case Type::b8: case Type::u8: return F<uint8_t>::of;
    case Type::b16: case Type::u16: return F<uint16_t>::of;
    case Type::b32: case Type::u32: return F<uint32_t>::of;
    case Type::b64: case Type::u64: return F<uint64_t>::of;
    case Type::s8: return F<int8_t>::of;
    case Type::s16: return F<int16_t>::of;
    case Type::s32: return F<int32_t>::of;
    case Type::s64: return F<int64_t>::of;
    default: return nullptr;
  }
}
template <template <class> class F>
Value any(Type t) { return is_real(t) ? real<F>(t) : integer<F>(t); }
Value product(Type t) { return is_real(t) ? real<Mul>(t) : integer<Product>(t); }
Value product_and_sum(Type t) { return is_real(t) ? real<Fma>(t) : integer<Product>(t); }

#define OF(EXPRESSION) [](Type) -> Value { return [](const Args& a) -> uint64_t { return EXPRESSION; }; }
#define W(N) static_cast<uint32_t>(a.v[N])
uint32_t permuted(const Args& a) {
  uint64_t bytes = a.v[1] << 32 | W(0);
  uint32_t found = 0, selector = W(2);
  for (int n = 0; n < 4; ++n) {
    uint32_t which = selector >> 4 * n, byte = bytes >> 8 * (which & 7) & 255;
    found |= (which & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * n;
  }
  return found;
}
uint32_t looked_up(const Args& a) {
  uint32_t found = 0;
  for (int n = 0; n < 8; ++n)
    if (a.v[3] >> n & 1) found |= (n & 4 ? W(0) : ~W(0)) & (n & 2 ? W(1) : ~W(1)) & (n & 1 ? W(2) : ~W(2));
  return found;
}
uint32_t shifted(const Args& a) {
  uint32_t by = a.i.has("clamp") ? std::min(W(2), 32u) : W(2) & 31;
  uint64_t both = a.v[1] << 32 | W(0);
  return a.i.has("l") ? static_cast<uint32_t>(by == 32 ? W(0) : both << by >> 32) : static_cast<uint32_t>(both >> by);
}
const std::map<std::string_view, Value (*)(Type)> values = {
    {"add", any<Add>}, {"sub", any<Sub>}, {"mul", product}, {"mad", product_and_sum}, {"fma", real<Fma>}, {"div", any<Div>},
    {"rem", integer<Rem>}, {"neg", any<Neg>}, {"abs", any<Abs>}, {"min", any<Min>}, {"max", any<Max>}, {"rcp", real<Rcp>},
    {"sqrt", real<Sqrt>}, {"rsqrt", real<Rsqrt>}, {"ex2", real<Exp2>}, {"lg2", real<Log2>}, {"sin", real<Sin>},
    {"cos", real<Cos>}, {"tanh", real<Tanh>}, {"copysign", real<Copysign>}, {"and", integer<And>}, {"or", integer<Or>},
    {"xor", integer<Xor>}, {"not", integer<Not>}, {"cnot", integer<Cnot>}, {"shl", integer<Shl>}, {"shr", integer<Shr>},
    {"popc", integer<Count>}, {"clz", integer<LeadingZeros>}, {"brev", integer<Reversed>}, {"bfind", integer<Found>},
    {"bfe", integer<Extracted>}, {"bfi", integer<Inserted>}, {"prmt", OF(permuted(a))}, {"lop3", OF(looked_up(a))},
    {"shf", OF(shifted(a))}, {"selp", OF(a.v[2] & 1 ? a.v[0] : a.v[1])}, {"sad", OF(is_signed(a.i.type) ? __sad(W(0), W(1), W(2)) : __usad(W(0), W(1), W(2)))},
    {"dp4a", OF(is_signed(a.i.type) ? static_cast<uint32_t>(__dp4a(int(W(0)), int(W(1)), int(W(2)))) : __dp4a(W(0), W(1), W(2)))},
    {"createpolicy", OF(uint64_t{0})},
};
// Words that change what an instruction does, and that nothing here knows.
constexpr std::string_view unknown_words[] = {"xorsign", "abs", "BOOL", "clamp_abs", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};

// ---- handlers --------------------------------------------------------------------------------------------------------

void compute(Machine& m, const Instruction& i) {
  Args a{i, {}};
  for (size_t n = 1; n < i.operands.size() && n <= 4; ++n) a.v[n - 1] = m.get(i.operands[n]);
  uint64_t found;
  if (i.rounding < 0) found = i.value(a);
  else found = rounded(i.rounding, [&] { return i.value(a); });
  m.put(i.operands[0], found, Type::b64);
}

// add.cc, addc, sub.cc, subc, mad.cc and madc: the carry outlives a statement.
SIMT_EACH uint8_t carries[max_threads];
template <class T>
struct Chained {
  static uint64_t of(const Args& a) {
    using U = std::make_unsigned_t<T>;
    const std::string& name = a.i.name;
    bool subtracts = name[0] == 's', chains = name.back() == 'c';
    uint8_t& carry = carries[S.current];
    U x = static_cast<U>(a.v[0]), y = static_cast<U>(a.v[1]);
    if (name[0] == 'm') x = static_cast<U>(integer<Product>(a.i.type)({a.i, {a.v[0], a.v[1], 0}})), y = static_cast<U>(a.v[2]);
    unsigned __int128 whole = x, other = static_cast<unsigned __int128>(y) + (chains && carry);
    whole = subtracts ? whole - other : whole + other;
    if (a.i.has("cc")) carry = whole >> (8 * sizeof(T)) & 1;
    return static_cast<U>(whole);
  }
};

const char* const comparisons[] = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
                                   "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
template <class X>
bool compared(int how, X x, X y) {
  bool unordered = x != x || y != y;
  if (how == 16) return !unordered;
  if (how == 17) return unordered;
  if (unordered) return how > 9;
  constexpr int plain[] = {0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  switch (plain[how]) {
    case 0: return x == y;
    case 1: return x != y;
    case 2: return x < y;
    case 3: return x <= y;
    case 4: return x > y;
    default: return x >= y;
  }
}
template <class T>
struct Compare {
  static uint64_t of(const Args& a) { return compared(a.i.detail, get<T>(a, 0), get<T>(a, 1)); }
};

uint64_t combined(const Instruction& i, bool with, bool c) {
  return i.has("and") ? with && c : i.has("or") ? with || c : i.has("xor") ? with != c : with;
}
void set_predicates(Machine& m, const Instruction& i) {
  bool found = i.value({i, {m.get(i.operands[1]), m.get(i.operands[2])}}), c = i.operands.size() > 3 && m.get(i.operands[3]) & 1;
  const Operand& to = i.operands[0];
  m.put(to, combined(i, found, c), Type::pred);
  if (!to.parts.empty()) m.put(to.parts[0], combined(i, !found, c), Type::pred);
}
void set_word(Machine& m, const Instruction& i) {
  bool found = i.value({i, {m.get(i.operands[1]), m.get(i.operands[2])}});
  m.put(i.operands[0], !found ? 0 : i.type == Type::f32 ? 0x3f800000u : ~0u, Type::b32);
}
Handler comparison(Instruction& i) {
  i.detail = -1;
  for (int n = 0; n < static_cast<int>(std::size(comparisons)); ++n)
    if (i.has(comparisons[n])) i.detail = n;
  bool is_set = i.name == "set";
  Type t = is_set ? i.from : i.type;
  i.value = t == Type::f16x2 || t == Type::bf16x2 ? nullptr : any<Compare>(t);
  if (i.detail < 0 || !i.value || i.operands.size() < 3) return nullptr;
  return is_set ? set_word : set_predicates;
}

// mov, also of what is packed into one register, and taken apart.
void move(Machine& m, const Instruction& i) {
  const Operand &to = i.operands[0], &from = i.operands[1];
  uint64_t whole = 0;
  int bits = 8 * bytes_of(i.type);
  if (from.kind != Operand::is_group) whole = m.get(from);
  else
    for (size_t n = 0, width = bits / from.parts.size(); n < from.parts.size(); ++n)
      whole |= (m.get(from.parts[n]) & ((uint64_t{1} << width) - 1)) << n * width;
  if (to.kind != Operand::is_group) return m.put(to, whole, i.type);
  for (size_t n = 0, width = bits / to.parts.size(); n < to.parts.size(); ++n)
    m.put(to.parts[n], whole >> n * width & ((uint64_t{1} << width) - 1), Type::b64);
}
void jump(Machine& m, const Instruction& i) { m.next = i.target; }
void nothing(Machine&, const Instruction&) {}
}  // namespace

Value arithmetic(std::string_view name, Type type) {
  auto found = values.find(name);
  return found == values.end() ? nullptr : found->second(type);
}

Handler number_handler(Instruction& i) {
  if (i.name == "bra") return jump;
  if (i.name == "setp" || i.name == "set") return comparison(i);
  if (i.operands.size() < 2) return nullptr;
  if (i.name == "mov") return bytes_of(i.type) ? move : nullptr;
  for (std::string_view word : unknown_words)
    if (i.has(word)) return nullptr;
  bool chains = i.has("cc") || i.name == "addc" || i.name == "subc" || i.name == "madc";
  i.value = chains ? integer<Chained>(i.type) : i.name == "cvt" ? conversion(i) : arithmetic(i.name, i.type);
  if (i.name == "mad" && !is_real(i.type) && i.saturates) return nullptr;
  return i.value ? compute : nullptr;
}
}  // namespace simt::ptx
