// cvt: between integers, floats, and floats packed into one register.
#include "ptx.h"

namespace simt::ptx {
double real_of(uint64_t raw, Type t) {
  switch (t) {
    case Type::f16: return __half2float(__half(__half_raw{static_cast<unsigned short>(raw)}));
    case Type::bf16: return bits<float>(static_cast<uint32_t>(raw) << 16);
    case Type::f64: return bits<double>(raw);
    case Type::e4m3: case Type::e5m2: {
      auto how = t == Type::e4m3 ? __NV_E4M3 : __NV_E5M2;
      return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(raw), how)));
    }
    default: return bits<float>(static_cast<uint32_t>(raw));
  }
}

namespace {
// Of a float's 23 bits 10 are kept: to nearest with ties away, to nearest even, or cut off.
uint32_t tf32(uint32_t x, const Instruction& i) {
  if ((x & 0x7f800000u) == 0x7f800000u) return x & 0x7fffffu ? 0x7fffffffu : x;
  uint32_t up = i.has("rna") ? 0x1000u : i.rounding == FE_TOWARDZERO ? 0 : 0xfffu + (x >> 13 & 1);
  x = (x + up) & 0xffffe000u;
  if (i.has("satfinite") && (x & 0x7f800000u) == 0x7f800000u) x = (x & 0x80000000u) | 0x7f7fe000u;
  return x;
}

}  // namespace

uint64_t raw_of(double x, Type t, const Instruction& i) {
  if (i.has("relu") && x < 0) x = 0;
  if (i.has("sat")) x = x > 0 ? x < 1 ? x : 1 : 0;
  bool cut = i.rounding == FE_TOWARDZERO;
  switch (t) {
    case Type::f16: {
      uint16_t found = static_cast<__half_raw>(cut ? __float2half_rz(static_cast<float>(x)) : __double2half(x)).x;
      return i.has("satfinite") && (found & 0x7fff) == 0x7c00 ? found - 1u : found;
    }
    case Type::bf16: {
      uint16_t found = static_cast<__nv_bfloat16_raw>(cut ? __float2bfloat16_rz(static_cast<float>(x)) : __double2bfloat16(x)).x;
      return i.has("satfinite") && (found & 0x7fff) == 0x7f80 ? found - 1u : found;
    }
    case Type::f64: return bits<uint64_t>(x);
    case Type::e4m3: case Type::e5m2: return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, t == Type::e4m3 ? __NV_E4M3 : __NV_E5M2);
    case Type::tf32: return tf32(bits<uint32_t>(static_cast<float>(x)), i);
    default: {
      volatile double from = x;
      auto found = bits<uint32_t>(static_cast<float>(from));
      bool tiny = (found & 0x7f800000u) == 0;
      return i.flushes && tiny ? found & 0x80000000u : found;
    }
  }
}

namespace {
double integral(double x, const Instruction& i) {
  if (i.has("rni")) return std::nearbyint(x);
  if (i.has("rzi")) return std::trunc(x);
  if (i.has("rmi")) return std::floor(x);
  return i.has("rpi") ? std::ceil(x) : x;
}

template <class To>
uint64_t whole_of(const Args& a) {
  double x = integral(real_of(a.v[0], a.i.from), a.i);
  To found = a.i.from == Type::f64 ? whole<To>(x) : whole<To>(static_cast<float>(x));
  return static_cast<uint64_t>(found);
}

// An integer as __int128, and as it fits into another type.
__int128 integer(uint64_t raw, Type t) {
  int unused = 64 - 8 * bytes_of(t);
  return is_signed(t) ? static_cast<__int128>(static_cast<int64_t>(raw << unused) >> unused) : static_cast<__int128>(raw << unused >> unused);
}
uint64_t between_integers(const Args& a) {
  __int128 x = integer(a.v[0], a.i.from);
  int width = 8 * bytes_of(a.i.type);
  if (a.i.has("sat")) {
    __int128 high = (__int128{1} << (width - is_signed(a.i.type))) - 1, low = is_signed(a.i.type) ? -high - 1 : 0;
    x = x < low ? low : x > high ? high : x;
  }
  return static_cast<uint64_t>(integer(static_cast<uint64_t>(x), a.i.type));
}
uint64_t of_integer(const Args& a) {
  volatile int64_t x = static_cast<int64_t>(integer(a.v[0], a.i.from));
  bool large = a.i.from == Type::u64 && x < 0;
  if (a.i.type == Type::f64) return bits<uint64_t>(large ? of_unsigned<double>(x, fegetround()) : static_cast<double>(x));
  if (a.i.type == Type::f32) return bits<uint32_t>(large ? of_unsigned<float>(x, fegetround()) : static_cast<float>(x));
  return raw_of(static_cast<double>(x), a.i.type, a.i);
}
uint64_t between_reals(const Args& a) { return raw_of(integral(real_of(a.v[0], a.i.from), a.i), a.i.type, a.i); }

// Two into one register, the first above; from one register to another.
Type lane(Type t) {
  return t == Type::f16x2 ? Type::f16 : t == Type::bf16x2 ? Type::bf16 : t == Type::e4m3x2 ? Type::e4m3 : t == Type::e5m2x2 ? Type::e5m2 : Type::none;
}
uint64_t packed(const Args& a) {
  Type to = lane(a.i.type), from = lane(a.i.from);
  int shift = 8 * bytes_of(to), behind = 8 * bytes_of(from);
  if (from == Type::none) return raw_of(real_of(a.v[0], a.i.from), to, a.i) << shift | raw_of(real_of(a.v[1], a.i.from), to, a.i);
  uint64_t mask = (uint64_t{1} << behind) - 1;
  return raw_of(real_of(a.v[0] >> behind & mask, from), to, a.i) << shift | raw_of(real_of(a.v[0] & mask, from), to, a.i);
}
}  // namespace

Value conversion(const Instruction& i) {
  if (i.type == Type::none || i.from == Type::none || i.has("pack")) return nullptr;
  bool of_two = lane(i.from) == Type::none;
  if (lane(i.type) != Type::none)
    return i.from == Type::f32 && of_two ? (i.operands.size() == 3 ? packed : nullptr) : of_two ? nullptr : packed;
  if (!of_two) return nullptr;
  if (is_real(i.type) && is_real(i.from)) return between_reals;
  if (is_real(i.type)) return of_integer;
  if (!is_real(i.from)) return between_integers;
  switch (i.type) {
    case Type::u8: return whole_of<uint8_t>;
    case Type::u16: return whole_of<uint16_t>;
    case Type::u32: return whole_of<uint32_t>;
    case Type::u64: return whole_of<uint64_t>;
    case Type::s8: return whole_of<int8_t>;
    case Type::s16: return whole_of<int16_t>;
    case Type::s32: return whole_of<int32_t>;
    case Type::s64: return whole_of<int64_t>;
    default: return nullptr;
  }
}
}  // namespace simt::ptx
