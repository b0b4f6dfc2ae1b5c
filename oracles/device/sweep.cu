// The judge's half of a proof on a GPU: every element of a part of all inputs is computed again from its number, exactly
// or with an error bound, and compared with what the subject left.
//
// found: how many elements fail, the least of them, the largest share of its budget that one used (a double's bits),
// then the numbers of some that fail, and what was got there.
typedef unsigned long long u64;

constexpr int LISTED = 16, LEAST = 1, RHO = 2, NUMBERS = 3, GOT = NUMBERS + LISTED;

__device__ void report(u64* found, u64 number, unsigned int got) {
  u64 place = atomicAdd(&found[0], 1ull);
  atomicMin(&found[LEAST], number);
  if (place < LISTED) found[NUMBERS + place] = number, found[GOT + place] = got;
}

// The bits of a float32 rounded to `digits` bits of significand behind the first and `width` of exponent, ties to even
// (IEEE 754-2019, 4.3.1). Not for NaN.
__device__ unsigned int narrowed(unsigned int bits, int digits, int width) {
  int bias = (1 << (width - 1)) - 1, least = 1 - bias - digits;  // exponent of the last bit of a subnormal number
  unsigned int sign = bits >> 31 << (digits + width), infinite = ((1u << width) - 1) << digits;
  int exponent = static_cast<int>(bits >> 23 & 255);
  unsigned int significand = bits & 0x7fffff;
  if (exponent == 255) return sign | infinite;
  if (exponent) significand |= 0x800000;
  else exponent = 1;
  int last = max(exponent - 127 - digits, least), dropped = min(last - (exponent - 150), 26);
  unsigned int kept = significand >> dropped, rest = significand & ((1u << dropped) - 1), half = 1u << (dropped - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // A kept first bit raises the exponent by one, and so does a carry out of the significand.
  unsigned int magnitude = (static_cast<unsigned int>(last - least) << digits) + kept;
  return sign | min(magnitude, infinite);
}

// Element i is what the float32 with the bits first + i was converted to. Zeros of either sign are the same number.
extern "C" __global__ void conversions(const unsigned short* got, u64* found, u64 first, u64 count, int digits,
                                       int width) {
  u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  unsigned int infinite = ((1u << width) - 1) << digits, all = (1u << (digits + width)) - 1;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned int x = static_cast<unsigned int>(first + i), y = got[i];
    bool right;
    if ((x & 0x7fffffff) > 0x7f800000) {
      right = (y & all) > infinite;
    } else {
      unsigned int want = narrowed(x, digits, width);
      right = y == want || ((y | want) & all) == 0;
    }
    if (!right) report(found, first + i, y);
  }
}

// 2**k of a normal double.
__device__ double power(int k) { return __longlong_as_double(static_cast<long long>(k + 1023) << 52); }

// The distance of a number from those that round to a float16 (numerics.md 0); not for NaN.
__device__ double excess(unsigned int bits, double want) {
  bool negative = bits >> 15;
  int exponent = static_cast<int>(bits >> 10 & 31), digits = static_cast<int>(bits & 1023);
  if (negative) want = -want;
  if (exponent == 31) return fmax(65520.0 - want, 0.0);
  double last = power(max(exponent, 1) - 25), y = (exponent ? 1024 + digits : digits) * last;
  bool narrow = digits == 0 && exponent > 1 && y > want;  // below a power of two numbers lie twice as close
  return fmax(fabs(y - want) - (narrow ? 0.25 : 0.5) * last, 0.0);
}

__device__ bool infinite_or_nan(unsigned int bits) { return (bits & 0x7c00) == 0x7c00; }

// NaN, Inf, -Inf: 0, 1, 2.
__device__ int class_of(unsigned int bits) { return bits & 1023 ? 0 : 1 + static_cast<int>(bits >> 15); }

constexpr int INTERVAL = 1, ZERO = 2, PLUS = 4, MINUS = 8, NOT = 16;  // as in oracles/spec/contract.py

__device__ int classes_of(unsigned int bits) {
  if (infinite_or_nan(bits)) return class_of(bits) == 0 ? NOT : class_of(bits) == 1 ? PLUS : MINUS;
  return bits & 0x7fff ? 0 : ZERO;
}

// Element i is silu_gate of the float16 pair with the bits first + i, the gate in the upper half. act and own: silu of
// every finite gate, and how wrong a subject may have it. Where a number is not finite, three tables for each of its
// classes, first for the gate's and then for the other's: what is wanted, its budget, and which classes are accepted.
extern "C" __global__ void gated(const unsigned short* got, u64* found, u64 first, u64 count, const double* numbers,
                                 const double* act, const double* own, const double* wanted, const double* budgets,
                                 const unsigned char* accepted, double u, double tiny) {
  u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  double rho = 0.0;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned int pair = static_cast<unsigned int>(first + i), gate = pair >> 16, up = pair & 0xffff, y = got[i];
    double want, error;
    int accept = INTERVAL;
    if (infinite_or_nan(gate) || infinite_or_nan(up)) {
      int row = infinite_or_nan(gate) ? class_of(gate) : 3 + class_of(up);
      unsigned int at = static_cast<unsigned int>(row) << 16 | (infinite_or_nan(gate) ? up : gate);
      want = wanted[at], error = budgets[at], accept = accepted[at];
    } else {
      double b = numbers[up];
      want = act[gate] * b;
      error = own[gate] * fabs(b) + 2.0 * u * fabs(want) + 4.0 * tiny;
      if (fabs(act[gate]) < tiny || fabs(b) < tiny) error += fabs(want);
    }
    bool right = (accept & classes_of(y)) != 0, number = !(infinite_or_nan(y) && class_of(y) == 0);
    if (!right && (accept & INTERVAL) && want - want == 0.0 && number) {
      double off = excess(y, want);
      right = off <= error || off == 0.0;
      if (off > 0.0 && right) rho = fmax(rho, off / error);
    }
    if (!right) report(found, first + i, y);
  }
  if (rho > 0.0) atomicMax(&found[RHO], static_cast<u64>(__double_as_longlong(rho)));
}
