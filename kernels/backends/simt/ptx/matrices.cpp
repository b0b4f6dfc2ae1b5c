// Matrices that the lanes of a warp hold together. Where an element lies is the PTX ISA's: lane 4 * g + t holds row g (and
// g + 8), and as many neighbours of column t as fit into a register. Sums are rounded one by one to the accumulator's
// type, from the first k to the last, as in mma.h.
#include "ptx.h"

#include <stdio.h>

namespace simt::ptx {
namespace {
// ---- ldmatrix and stmatrix: lane 8 * j + r has the address of row r of matrix j ----------------------------------------

struct Rows {
  const Instruction* how;
  uint16_t row[8];
  uint32_t held[4];
};
int tiles_of(const Instruction& i) { return i.has("x4") ? 4 : i.has("x2") ? 2 : 1; }

void exchange(uint64_t* lanes) {
  for (unsigned l = 0; l < warp_lanes; ++l) {
    auto* mine = reinterpret_cast<Rows*>(lanes[l]);
    if (!mine) continue;
    bool turned = mine->how->has("trans"), stores = mine->how->name == "stmatrix";
    for (int j = 0; j < tiles_of(*mine->how); ++j)
      for (unsigned h = 0; h < 2; ++h) {
        unsigned row = l / 4, column = l % 4 * 2 + h;
        if (turned) std::swap(row, column);
        auto* owner = reinterpret_cast<Rows*>(lanes[8 * j + row]);
        if (!owner) continue;
        if (stores) owner->row[column] = static_cast<uint16_t>(mine->held[j] >> 16 * h);
        else mine->held[j] |= static_cast<uint32_t>(owner->row[column]) << 16 * h;
      }
  }
}
void move_tiles(Machine& m, const Instruction& i) {
  bool stores = i.name == "stmatrix";
  const Operand &address = i.operands[!stores], &group = i.operands[stores];
  Rows mine{&i, {}, {}};
  bool has_row = lane_of(S.current) < 8 * tiles_of(i);
  auto* at = reinterpret_cast<uint16_t*>(shared_pointer(m.address(address)));
  if (has_row) touch(m, reinterpret_cast<uintptr_t>(at), 16, stores ? writes : reads);
  if (has_row && !stores) memcpy(mine.row, at, 16);
  acting_for = nullptr;
  for (size_t j = 0; stores && j < group.parts.size(); ++j) mine.held[j] = static_cast<uint32_t>(m.get(group.parts[j]));
  warp_together(exchange, reinterpret_cast<uint64_t>(&mine), m.at);
  if (has_row && stores) memcpy(at, mine.row, 16);
  for (size_t j = 0; !stores && j < group.parts.size(); ++j) m.put(group.parts[j], mine.held[j], Type::b32);
}
Handler tiles_handler(Instruction& i) {
  bool stores = i.name == "stmatrix";
  bool fits = i.operands.size() == 2 && i.has("m8n8") && i.has("sync") && i.type == Type::b16;
  return fits && i.operands[stores].kind == Operand::is_group && static_cast<int>(i.operands[stores].parts.size()) == tiles_of(i) ? move_tiles : nullptr;
}

// ---- mma ---------------------------------------------------------------------------------------------------------------

struct Share {
  const Instruction* how;
  uint64_t a[4], b[2], c[4], d[4];
};

template <class X>
X element(uint64_t raw, int n, Type t) {
  int width = 8 * bytes_of(t);
  if (width < 64) raw = raw >> n * width & ((uint64_t{1} << width) - 1);
  switch (t) {
    case Type::s8: return static_cast<X>(static_cast<int8_t>(raw));
    case Type::u8: return static_cast<X>(raw);
    case Type::s32: return static_cast<X>(static_cast<int32_t>(raw));
    case Type::tf32: return static_cast<X>(real_of(raw & 0xffffe000u, Type::f32));
    default: return static_cast<X>(real_of(raw, t));
  }
}
// Which element of the result is the n-th of a lane.
int place(int lane, int n) { return (lane / 4 + n / 2 * 8) * 8 + lane % 4 * 2 + n % 2; }

template <class X>
void read(const Instruction& how, uint64_t* lanes, X* a, X* b, X* c) {
  int k = how.k, m = how.detail, per = std::max(1, 4 / bytes_of(how.from)), per_c = how.c == Type::f16 ? 2 : 1;
  for (int l = 0; l < warp_lanes; ++l) {
    const auto* mine = reinterpret_cast<const Share*>(lanes[l]);
    if (!mine) continue;
    for (int r = 0; r < m * k / 32 / per; ++r)
      for (int j = 0; j < per; ++j) {
        int high = m == 16 ? r % 2 : 0, along = m == 16 ? r / 2 : r;
        a[(l / 4 + 8 * high) * k + along * 4 * per + l % 4 * per + j] = element<X>(mine->a[r], j, how.from);
      }
    for (int r = 0; r < k / 4 / per; ++r)
      for (int j = 0; j < per; ++j) b[(r * 4 * per + l % 4 * per + j) * 8 + l / 4] = element<X>(mine->b[r], j, how.b);
    for (int n = 0; n < m / 4; ++n) c[place(l, n)] = element<X>(mine->c[n / per_c], n % per_c, how.c);
  }
}
template <class X>
X summed(X sum, X a, X b) {
  if constexpr (std::is_same_v<X, double>) return ::fma(a, b, sum);
  else return sum + a * b;
}
template <class X>
void product(uint64_t* lanes) {
  const Instruction* how = nullptr;
  for (int l = 0; !how; ++l)
    if (lanes[l]) how = reinterpret_cast<const Share*>(lanes[l])->how;
  X a[16 * 32] = {}, b[32 * 8] = {}, c[16 * 8] = {};
  read(*how, lanes, a, b, c);
  int m = how->detail, k = how->k;
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < 8; ++column) {
      X& sum = c[row * 8 + column];
      for (int p = 0; p < k; ++p) sum = summed(sum, a[row * k + p], b[p * 8 + column]);
      if constexpr (std::is_same_v<X, int64_t>)
        if (how->saturates) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
    }
  int per = how->type == Type::f16 ? 2 : 1;
  for (int l = 0; l < warp_lanes; ++l) {
    auto* mine = reinterpret_cast<Share*>(lanes[l]);
    if (!mine) continue;
    for (int n = 0; n < m / 4; ++n) {
      X x = c[place(l, n)];
      uint64_t raw = std::is_same_v<X, int64_t> ? static_cast<uint32_t>(static_cast<int64_t>(x)) : raw_of(static_cast<double>(x), how->type, *how);
      mine->d[n / per] |= raw << 16 * (n % per);
    }
  }
}
void multiply(Machine& m, const Instruction& i) {
  Share mine{&i, {}, {}, {}, {}};
  uint64_t* into[] = {mine.d, mine.a, mine.b, mine.c};
  for (int o = 1; o < 4; ++o)
    for (size_t n = 0; n < i.operands[o].parts.size(); ++n) into[o][n] = m.get(i.operands[o].parts[n]);
  if (i.from == Type::f64) warp_together(product<double>, reinterpret_cast<uint64_t>(&mine), m.at);
  else if (!is_real(i.from)) warp_together(product<int64_t>, reinterpret_cast<uint64_t>(&mine), m.at);
  else warp_together(product<float>, reinterpret_cast<uint64_t>(&mine), m.at);
  for (size_t n = 0; n < i.operands[0].parts.size(); ++n) m.put(i.operands[0].parts[n], mine.d[n], Type::b64);
}

struct Shape {
  int m, k;
  Type a;
};
constexpr Shape shapes[] = {
    {16, 8, Type::f16}, {16, 16, Type::f16}, {16, 8, Type::bf16}, {16, 16, Type::bf16}, {16, 4, Type::tf32}, {16, 8, Type::tf32},
    {8, 16, Type::s8}, {16, 16, Type::s8}, {16, 32, Type::s8}, {8, 16, Type::u8}, {16, 16, Type::u8}, {16, 32, Type::u8},
    {8, 4, Type::f64}, {16, 32, Type::e4m3}, {16, 32, Type::e5m2},
};
// The types of D, A, B and C stand behind the layouts: .row.col.f32.f16.f16.f32
Handler product_handler(Instruction& i) {
  auto& w = i.words;
  size_t layout = 0, size = i.operands.size();
  while (layout < w.size() && w[layout] != "row") ++layout;
  int m = 0, n = 0, k = 0;
  for (const auto& word : w) sscanf(word.c_str(), "m%dn%dk%d", &m, &n, &k);
  if (!i.has("sync") || i.has("sp") || w.size() < layout + 6 || w[layout + 1] != "col" || n != 8 || size != 4) return nullptr;
  auto type_at = [&](size_t back) {
    const std::string& word = w[w.size() - back];
    for (auto [name, t] : {std::pair{"f16", Type::f16}, {"bf16", Type::bf16}, {"tf32", Type::tf32}, {"f32", Type::f32}, {"f64", Type::f64},
                           {"s8", Type::s8}, {"u8", Type::u8}, {"s32", Type::s32}, {"e4m3", Type::e4m3}, {"e5m2", Type::e5m2}})
      if (word == name) return t;
    return Type::none;
  };
  i.type = type_at(4), i.from = type_at(3), i.b = type_at(2), i.c = type_at(1), i.k = k, i.detail = m;
  if (!bytes_of(i.from) || !bytes_of(i.b)) return nullptr;
  bool alike = i.b == i.from || (bytes_of(i.b) == 1 && bytes_of(i.from) == 1 && is_real(i.b) == is_real(i.from));
  Type sum = i.from == Type::f64 ? Type::f64 : is_real(i.from) ? Type::f32 : Type::s32;
  bool halves = i.from == Type::f16;
  bool sums = (i.c == sum || (halves && i.c == Type::f16)) && (i.type == sum || (halves && i.type == Type::f16));
  size_t per = std::max(1, 4 / bytes_of(i.from)), parts[] = {m / 4 / size_t(1 + (i.type == Type::f16)), m * k / 32 / per, k / 4 / per,
                                                             m / 4 / size_t(1 + (i.c == Type::f16))};
  for (const Shape& s : shapes)
    if (s.m == m && s.k == k && s.a == i.from && alike && sums) {
      for (int o = 0; o < 4; ++o)
        if (i.operands[o].parts.size() != parts[o]) return nullptr;
      return multiply;
    }
  return nullptr;
}
}  // namespace

Handler matrix_handler(Instruction& i) {
  if (i.name == "ldmatrix" || i.name == "stmatrix") return tiles_handler(i);
  return i.name == "mma" ? product_handler(i) : nullptr;
}
}  // namespace simt::ptx
