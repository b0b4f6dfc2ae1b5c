// Compares an output with a peer or with a reference, both in device memory, as oracles/judging/measure_numba.py does on the host.
//
// walk: every element in float64, tile by tile; it defines each number and takes whatever comes.
// peers_*: two outputs of one float format, at the speed of memory. A warp looks at a tile in float32; where all is
//   finite, ordinary and within budget it adds it to its tally, and else leaves the tile to walk. Where a lane may hold
//   a largest value that float32 does not decide, all lanes look at its pairs once more, in float64. Largest values are
//   kept with their tile alone, for which element it was is found afterwards, in that tile, by walk.
// locate: which elements of given tiles fail, and how many in each cell of a map.
//
// No header is needed. Nothing here may be contracted or flushed: compile with --fmad=false, and without fast math.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// What may be tuned: threads of a block, blocks of peers_* and of walk that shall fit on a multiprocessor, tiles between
// two looks at what other blocks have found.
#ifndef BLOCK
#define BLOCK 128
#endif
#ifndef RESIDENT
#define RESIDENT 5
#endif
#ifndef EXCHANGE
#define EXCHANGE 8
#endif
#ifndef WALKERS
#define WALKERS 7
#endif
#define ALL 0xffffffffu
#define WARPS (BLOCK / 32)
#define ANY -1
#define LESS (1.0 - 0x1p-50)

enum { FLOAT64, FLOAT32, FLOAT16, BFLOAT16, INT8, UINT8, INT32, INT64, TABLE };
enum { SMALL, SINGLE, DOUBLE, INTEGER };                 // kernel_assay.oracles.judging.measure_numpy has the same
enum { INTERVAL = 1, ZERO = 2, PINF = 4, NINF = 8, NAN_ = 16 };  // kernel_assay.oracles.spec.contract has the same
enum { BAD, CLASS_BAD, OVER, MISROUNDED, GOT_NONFINITE, WANT_NONFINITE, PAIRS, SIGMAS, HISTOGRAM, BUCKETS = 66 };
// Tiles that peers_* left to walk, and those it looked at twice; oracles/device/measure.py has the names.
enum { UNUSUAL, FAILING, LOOK_REL, LOOK_RHO, LOOK_ULPS, LOOK_ABS, LOOK_FAR, NO_GLANCE, NOTES = 8,
       NOTED = HISTOGRAM + BUCKETS };
enum { SUM_EE, SUM_RR, SUM_YY, SUM_Z, PEAK, REAL_ULP, RHO, RHO_AT, MAX_ABS, ABS_AT, MAX_REL, REL_AT, ULP, ULP_AT,
       FIRST_CLASS, ROW = 16 };

struct Task {  // oracles/device/measure.py has the same
  u64 got, want, errors, masks, sigmas, table;           // addresses; 0: there is none
  u64 marks, floors;                                      // failures of each tile; see Floors
  double error, slope, sigma;
  i64 mask;                                               // -1: whatever class want has
  i64 got_kind, want_kind, peer;
  u64 size, origin, tile;  // elements: of all, before tile 1, where vectors may be loaded, of each tile
  u64 width, cell_height, cell_width, cell_columns;
  i64 mode, digits;
  double half, least, most, top, overflow;                // emin and emax are powers of two
  i64 has_inf;
};

// ---- one element ----------------------------------------------------------------------------------------------------

#define EXPONENT 0x7ff0000000000000LL
#define MANTISSA 0x000fffffffffffffLL
#define MAGNITUDE 0x7fffffffffffffffLL
#define UPPER_EXPONENT 0x7ff00000  // the same in the upper word, which is half the work

__device__ __forceinline__ i64 pattern(double x) { return __double_as_longlong(x); }
__device__ __forceinline__ double real(i64 bits) { return __longlong_as_double(bits); }
__device__ __forceinline__ int upper(double x) { return __double2hiint(x); }
__device__ __forceinline__ bool is_number(double x) { return (upper(x) & 0x7fffffff) < UPPER_EXPONENT; }
__device__ __forceinline__ double from_brain(u32 bits) { return __uint_as_float(bits << 16); }
__device__ __forceinline__ float from_half(u32 bits) {
  u32 magnitude = bits & 0x7fffu;
  float size = __uint_as_float(magnitude << 13) * 5.192296858534828e33f;  // 2**112; subnormals come out right, too
  if (magnitude >= 0x7c00u) size = __uint_as_float((magnitude << 13) | 0x7f800000u);
  return __uint_as_float(__float_as_uint(size) | (bits & 0x8000u) << 16);
}

__device__ __forceinline__ u64 bits_at(u64 base, i64 kind, u64 i) {
  switch (kind) {
    case FLOAT64: case INT64: return ((const u64*)base)[i];
    case FLOAT32: case INT32: return ((const u32*)base)[i];
    case FLOAT16: case BFLOAT16: return ((const u16*)base)[i];
    default: return ((const u8*)base)[i];
  }
}

__device__ __forceinline__ double number(u64 bits, i64 kind, u64 table) {
  switch (kind) {
    case FLOAT64: return real((i64)bits);
    case FLOAT32: return __uint_as_float((u32)bits);
    case FLOAT16: return from_half((u32)bits);
    case BFLOAT16: return from_brain((u32)bits);
    case INT8: return (signed char)bits;
    case UINT8: return (double)bits;
    case INT32: return (int)bits;
    case INT64: return (double)(i64)bits;
    default: return ((const double*)table)[bits];
  }
}

// The exponent of x as a power of two, between two other ones.
__device__ __forceinline__ double power_below(double x, double low, double high) {
  return __hiloint2double(min(max(upper(x) & UPPER_EXPONENT, upper(low)), upper(high)), 0);
}

// Distance of r from the cell of y, both finite; negative inside it (numerics.md 0).
__device__ __forceinline__ double raw_excess(double y, double r, double half, double least) {
  double e = y - r, power;
  i64 size = (pattern(y) & MAGNITUDE) - ((upper(e) ^ upper(y)) >= 0);  // below a power of two cells are half as wide
  power = __hiloint2double(max((int)(size >> 32), upper(least)) & UPPER_EXPONENT, 0);
  return fabs(e) - fmin(power * half, 8.98846567431158e307);  // 2**1023
}

// As kernel_assay.oracles.judging.measure_numba._cell; for int64 as kernel_assay.oracles.judging.measure_numpy.cell_excess.
__device__ double excess_of(const Task& t, double y, double r, u64 bits, u64 want_bits) {
  double zero = 0.0;
  if (t.mode == INTEGER) {
    double away = fabs(y - r);
    if (t.got_kind != INT64 || away != 0.0 || fabs(r) >= 9223372036854775808.0) return away;
    i64 apart = (i64)bits - (t.peer ? (i64)want_bits : (i64)r);
    return fabs((double)apart);
  }
  if (is_number(y)) return fmax(raw_excess(y, r, t.half, t.least), zero);
  if (y != y) return t.has_inf ? y : fmax(t.overflow - fabs(r), zero);
  return fmax(t.overflow - (y > 0.0 ? r : -r), zero);
}

__device__ __forceinline__ u64 distance(const Task& t, i64 mode, u64 bits, double y, double r) {
  if (mode == INTEGER) {
    double away = fmin(rint(fabs(y - r)), 9223372036854775808.0);
    return away >= 0.0 ? (u64)away : 0;
  }
  if (mode == SINGLE) {
    u32 p = (u32)bits, q = __float_as_uint((float)r), mp = p & 0x7fffffffu, mq = q & 0x7fffffffu;
    return (p ^ q) >> 31 ? mp + mq : max(mp, mq) - min(mp, mq);
  }
  if (mode == DOUBLE) {
    i64 b = pattern(r), mp = (i64)bits & MAGNITUDE, mq = b & MAGNITUDE;
    return ((i64)bits ^ b) < 0 ? (u64)mp + (u64)mq : (u64)(mp > mq ? mp - mq : mq - mp);
  }
  i64 power = pattern(power_below(r, t.least, t.most)), width = t.got_kind == TABLE ? 7 : 15;
  double step = fabs(r) * real(2046 * (MANTISSA + 1) - power) * real((1023 + t.digits) << 52);
  i64 rounded = ((power - pattern(t.least)) >> (52 - t.digits)) + (pattern(step + 4503599627370496.0) & MANTISSA);
  i64 mine = (i64)bits & ((1LL << width) - 1);
  bool opposite = ((bits >> width) != 0) != (pattern(r) < 0);
  return (u64)(opposite ? mine + rounded : mine > rounded ? mine - rounded : rounded - mine);
}

__device__ __forceinline__ double ulp_of(const Task& t, double r) {
  return power_below(r, t.least, t.most) * (2.0 * t.half);
}

__device__ __forceinline__ int plain_mask(const Task& t, double r) {
  if (is_number(r)) return INTERVAL;
  return r != r || !t.has_inf ? NAN_ : r > 0.0 ? PINF : NINF;
}

__device__ __forceinline__ bool taken(double y, int mask) {
  int infinite = is_number(y) ? 0 : y > 0.0 ? PINF : NINF;
  return mask & (y != y ? NAN_ : y == 0.0 ? ZERO : infinite);
}

// 0, 1, 2, 3-4, 5-8, ... -> 0, 1, 2, 3, 4, ...
__device__ __forceinline__ u32 bucket(u64 steps) { return steps ? min(65 - __clzll((i64)(steps - 1)), BUCKETS - 1) : 0; }
__device__ __forceinline__ u32 short_bucket(u32 steps) { return steps ? 33 - __clz((int)(steps - 1)) : 0; }

__device__ __forceinline__ double allowed(const Task& t, u64 i, double r) {
  if (t.errors) return ((const double*)t.errors)[i];
  return t.peer ? t.error + t.slope * fabs(r) : t.error;
}

// ---- tallies --------------------------------------------------------------------------------------------------------

template <class T>
struct Most {  // the largest value, and the first place that has it
  T value;
  u64 at;
  __device__ __forceinline__ void see(T v, u64 i) {
    if (v > value || (v == value && i < at && v > T(0))) value = v, at = i;
  }
  __device__ __forceinline__ void rise(T v, u64 i) {  // where places come in their order
    if (v > value) value = v, at = i;
  }
};

struct Tally {
  double ee, rr, yy, zz, peak, ulps;
  Most<double> rho, abs, rel;
  Most<u64> steps;
  u64 first_class;
};

__device__ Tally nothing() {
  const u64 nowhere = ~0ull;
  return {0, 0, 0, 0, 0, 0, {0, nowhere}, {0, nowhere}, {0, nowhere}, {0, nowhere}, nowhere};
}

template <class T>
__device__ T from_lane(T v, int step) { return __shfl_xor_sync(ALL, v, step); }

template <class T>
__device__ void most_of_warp(Most<T>& m) {
  for (int step = 16; step; step /= 2) {
    T v = from_lane(m.value, step);
    u64 i = from_lane(m.at, step);
    m.see(v, i);
  }
}

// The tallies of all threads, in `row`: 16 numbers of 64 bits. Sums are added in one order always.
__device__ void write_row(Tally s, u64* row) {
  __shared__ Tally parts[WARPS];
  for (int step = 16; step; step /= 2) {
    s.ee += from_lane(s.ee, step), s.rr += from_lane(s.rr, step);
    s.yy += from_lane(s.yy, step), s.zz += from_lane(s.zz, step);
    s.peak = fmax(s.peak, from_lane(s.peak, step)), s.ulps = fmax(s.ulps, from_lane(s.ulps, step));
    u64 first = from_lane(s.first_class, step);
    s.first_class = min(s.first_class, first);
  }
  most_of_warp(s.rho), most_of_warp(s.abs), most_of_warp(s.rel), most_of_warp(s.steps);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < WARPS; ++w) {
      const Tally& o = parts[w];
      s.ee += o.ee, s.rr += o.rr, s.yy += o.yy, s.zz += o.zz;
      s.peak = fmax(s.peak, o.peak), s.ulps = fmax(s.ulps, o.ulps), s.first_class = min(s.first_class, o.first_class);
      s.rho.see(o.rho.value, o.rho.at), s.abs.see(o.abs.value, o.abs.at), s.rel.see(o.rel.value, o.rel.at);
      s.steps.see(o.steps.value, o.steps.at);
    }
    double reals[] = {s.ee, s.rr, s.yy, s.zz, s.peak, s.ulps};
    for (int i = 0; i < 6; ++i) row[i] = (u64)pattern(reals[i]);
    row[RHO] = (u64)pattern(s.rho.value), row[RHO_AT] = s.rho.at;
    row[MAX_ABS] = (u64)pattern(s.abs.value), row[ABS_AT] = s.abs.at;
    row[MAX_REL] = (u64)pattern(s.rel.value), row[REL_AT] = s.rel.at;
    row[ULP] = s.steps.value, row[ULP_AT] = s.steps.at, row[FIRST_CLASS] = s.first_class;
  }
}

// What has been reached so far, as patterns of float32 at or below it: no element below need be looked at closely.
struct Floors {
  u32 rel, rho;
};

__device__ __forceinline__ void raise_floor(u32* floor, double value) {
  atomicMax(floor, __float_as_uint(__double2float_rz(value)));
}

// Likewise in the memory of the device, with two pairs of 16-bit numbers that reach it: in a word got, want and, above
// them, the turn in which a warp of peers_* met them (0: walk did before). Word 0: none. What equals one of an earlier
// turn comes after it, and is no new record.
enum { OF_REL, OF_RHO };
struct Reached {
  Floors floors;
  u64 pairs[2];
  u32 away, ulps;  // by walk alone, before peers_*: patterns of float32
};

struct Pair {
  double got, want, excess, value;  // value: the relative error, or rho
  u32 turn;
};

__device__ __forceinline__ u64 word_of(u32 turn, u32 bits) { return (u64)turn << 32 | bits; }

__device__ __forceinline__ Pair pair_of(const Task& t, i64 kind, int what, u64 word) {
  Pair p = {number(word & 0xffffu, kind, 0), number(word >> 16 & 0xffffu, kind, 0), 0.0, 0.0};
  double size = fabs(p.want);
  p.turn = (u32)(word >> 32);
  if (what == OF_RHO) {
    double room = t.error + t.slope * size;
    p.excess = fmax(raw_excess(p.got, p.want, t.half, t.least), 0.0);
    p.value = p.excess <= 0.0 ? 0.0 : room > 0.0 ? p.excess / room : real(EXPONENT);
  } else {
    p.value = size > 0.0 ? fabs(p.got - p.want) / size : 0.0;
  }
  return p;
}

// Whether a budget is kept, and by an excess of few bits: so that ties can be told.
#define GLANCED 32  // distances below it are exact in two numbers of 16 bits, less half a step
__device__ __forceinline__ bool of_few_bits(const Task& t, const Pair& p) {
  return p.value > 0.0 && p.value <= 1.0 && p.excess < GLANCED * 2.0 * t.half * fabs(p.want);
}

// Tell all blocks of a pair that reaches more than any before; of those with one rho, the one with the largest want.
__device__ __noinline__ void offer(const Task& t, i64 kind, int what, u64 word) {
  u64* known = &((Reached*)t.floors)->pairs[what];
  const Pair mine = pair_of(t, kind, what, word);
  if (what == OF_RHO && !of_few_bits(t, mine)) return;
  for (u64 seen = *(volatile u64*)known;;) {
    const Pair best = pair_of(t, kind, what, seen);
    bool more = !seen || mine.value > best.value;
    if (seen && mine.value == best.value)
      more = mine.excess != best.excess ? mine.excess > best.excess : mine.turn < best.turn;
    if (!more) return;
    const u64 found = atomicCAS(known, seen, word);
    if (found == seen) return;
    seen = found;
  }
}

// ---- walk -----------------------------------------------------------------------------------------------------------

// Rows of the histogram have a column for each lane, so that no two lanes meet in a bank.
struct Counted {
  u32 bad, class_bad, over, misrounded, got_nonfinite, want_nonfinite, pairs, sigmas;
};

// GOT, WANT: kinds known beforehand, or ANY.
template <int GOT, int WANT>
__device__ __forceinline__ void visit(const Task& t, u64 i, Tally& s, Counted& n, u32* columns, u32& failed) {
  const i64 got_kind = GOT == ANY ? t.got_kind : GOT, want_kind = WANT == ANY ? t.want_kind : WANT;
  u64 bits = bits_at(t.got, got_kind, i), other = bits_at(t.want, want_kind, i);
  double y = number(bits, got_kind, t.table), r = number(other, want_kind, t.table);
  double away = fabs(y - r), size = fabs(r), error = allowed(t, i, r);
  bool pair = is_number(y) && is_number(r);
  n.got_nonfinite += !is_number(y), n.want_nonfinite += !is_number(r);
  if (pair) {
    n.pairs += 1, s.ee = fma(away, away, s.ee), s.rr = fma(r, r, s.rr), s.yy = fma(y, y, s.yy);
    s.peak = fmax(s.peak, size);
    s.abs.rise(away, i);
    // Divisions are dear, so that only what may be a record is divided.
    if (away > 0.0 && size > 0.0 && away >= s.rel.value * LESS * size) s.rel.rise(away / size, i);
    if (away > 0.0 && t.mode != INTEGER && away >= s.ulps * LESS * ulp_of(t, r))
      s.ulps = fmax(s.ulps, away / ulp_of(t, r));
    if (size <= t.top) {
      u64 steps = distance(t, GOT == FLOAT32 ? SINGLE : t.mode, bits, y, r);
      s.steps.rise(steps, i);
      const u32 row = GOT == FLOAT32 ? short_bucket((u32)steps) : bucket(steps);
      if (columns) atomicAdd(&columns[row * 32 + threadIdx.x % 32], 1u);
    }
  }
  int mask = t.masks ? ((const u8*)t.masks)[i] : t.mask >= 0 ? (int)t.mask : plain_mask(t, r);
  if (taken(y, mask)) return;
  bool judged = (mask & INTERVAL) && is_number(r);
  double excess = excess_of(t, y, r, bits, other);
  bool fits = judged && (excess == 0.0 || excess <= error);
  if (judged && (pair || fits)) {
    n.misrounded += excess > 0.0;
    if (excess > 0.0 && !(excess < s.rho.value * LESS * error))
      s.rho.rise(error > 0.0 ? excess / error : real(EXPONENT), i);
  }
  if (judged && pair && (t.sigmas || t.sigma >= 0.0)) {
    double sigma = t.sigmas ? ((const double*)t.sigmas)[i] : t.sigma, unit = 0.2887 * ulp_of(t, r), e = y - r;
    s.zz += e != 0.0 ? e * e / (unit * unit + sigma * sigma) : 0.0;
    n.sigmas += 1;
  }
  if (fits) return;
  bool over = judged && pair;
  n.bad += 1, n.over += over, n.class_bad += !over, failed += 1;
  if (!over) s.first_class = min(s.first_class, i);
}

__device__ __forceinline__ u64 tile_begin(const Task& t, u64 tile) { return tile ? t.origin + (tile - 1) * t.tile : 0; }
__device__ __forceinline__ u64 tile_end(const Task& t, u64 tile) { return min(t.size, t.origin + tile * t.tile); }

template <int GOT, int WANT>
__device__ __forceinline__ void visit_tile(const Task& t, u64 tile, Tally& s, Counted& n, u32* columns) {
  u64 end = tile_end(t, tile);
  u32 failed = 0;
  for (u64 i = tile_begin(t, tile) + threadIdx.x; i < end; i += BLOCK) visit<GOT, WANT>(t, i, s, n, columns, failed);
  if (failed) atomicAdd((u32*)t.marks + tile, failed);
}

__device__ void add_counts(const Counted& n, const u32* columns, u64* counts) {
  u32 each[] = {n.bad, n.class_bad, n.over, n.misrounded, n.got_nonfinite, n.want_nonfinite, n.pairs, n.sigmas};
  for (int c = 0; c < HISTOGRAM; ++c) {
    u32 sum = each[c];
    for (int step = 16; step; step /= 2) sum += from_lane(sum, step);
    if (threadIdx.x % 32 == 0 && sum) atomicAdd(counts + c, (u64)sum);
  }
  for (u32 b = threadIdx.x; b < BUCKETS; b += BLOCK) {
    u64 sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += columns[b * 32 + (lane + b) % 32];
    if (sum) atomicAdd(counts + HISTOGRAM + b, sum);
  }
}

// The pair of 16-bit numbers at a place that walk has seen.
__device__ __forceinline__ u64 met(const Task& t, u64 i) {
  return word_of(0, (u32)bits_at(t.want, t.got_kind, i) << 16 | (u32)bits_at(t.got, t.got_kind, i));
}

// list: tiles, or null for all from first to last; one row for each block. left: null, or the tiles that peers_* left.
// With the facts of the format as constants: kernel_assay.oracles.judging.measure_numpy.facts_of has the same.
__device__ __forceinline__ Task known_float32(Task t) {
  t.mode = SINGLE, t.digits = 23, t.has_inf = 1, t.half = 0x1p-24, t.least = 0x1p-126, t.most = 0x1p127;
  t.overflow = 0x1.ffffffp127, t.top = 0x1.fffffefffffffp127;
  return t;
}

template <int GOT, int WANT>
__device__ __forceinline__ void walk_tiles(const Task& t, u64* rows, u64* counts, const u32* list, const u8* left,
                                           int first, int last) {
  __shared__ u32 columns[BUCKETS * 32];
  __shared__ u8 wanted[BLOCK];
  for (u32 i = threadIdx.x; i < BUCKETS * 32; i += BLOCK) columns[i] = 0;
  __syncthreads();
  Tally s = nothing();
  Counted n = {};
  if (left) {
    for (i64 base = first + (i64)blockIdx.x * BLOCK; base < last; base += (i64)gridDim.x * BLOCK) {
      i64 mine = base + threadIdx.x;
      wanted[threadIdx.x] = mine < last && left[mine];
      if (__syncthreads_or(wanted[threadIdx.x]))
        for (int k = 0; k < BLOCK; ++k)
          if (wanted[k]) visit_tile<GOT, WANT>(t, base + k, s, n, columns);
      __syncthreads();
    }
  } else {
    for (i64 k = first + (i64)blockIdx.x; k < last; k += gridDim.x)
      visit_tile<GOT, WANT>(t, list ? list[k] : k, s, n, columns);
  }
  __syncthreads();
  add_counts(n, columns, counts);
  write_row(s, rows + (u64)ROW * blockIdx.x);
  if (threadIdx.x == 0 && t.peer) {
    const u64* row = rows + (u64)ROW * blockIdx.x;
    raise_floor(&((Floors*)t.floors)->rel, real((i64)row[MAX_REL]));
    raise_floor(&((Floors*)t.floors)->rho, real((i64)row[RHO]));
    if (!left && !list && (t.got_kind == FLOAT16 || t.got_kind == BFLOAT16)) {
      if (row[MAX_REL]) offer(t, t.got_kind, OF_REL, met(t, row[REL_AT]));
      if (row[RHO]) offer(t, t.got_kind, OF_RHO, met(t, row[RHO_AT]));
      Reached* known = (Reached*)t.floors;
      raise_floor(&known->away, real((i64)row[MAX_ABS])), raise_floor(&known->ulps, real((i64)row[REAL_ULP]));
    }
  }
}

#define WALK(NAME, GOT, WANT, TASK)                                                                                    \
  extern "C" __global__ void __launch_bounds__(BLOCK, WALKERS)                                                         \
      NAME(const Task* __restrict__ task, u64* rows, u64* counts, const u32* list, const u8* left, int first,          \
           int last) {                                                                                                 \
    walk_tiles<GOT, WANT>(TASK, rows, counts, list, left, first, last);                                                \
  }
WALK(walk, ANY, ANY, *task)
WALK(walk_float32, FLOAT32, FLOAT64, known_float32(*task))

// One block for each tile of the list. failing: a byte for each element of the first `shown` of them.
extern "C" __global__ void __launch_bounds__(BLOCK) locate(const Task* task, const u32* list, u8* failing, u64* cells,
                                                           int shown) {
  const Task& t = *task;
  u64 tile = list[blockIdx.x], begin = tile_begin(t, tile), end = tile_end(t, tile);
  for (u64 i = begin + threadIdx.x; i < end; i += BLOCK) {
    Tally s = nothing();
    Counted n = {};
    u32 failed = 0;
    visit<ANY, ANY>(t, i, s, n, nullptr, failed);
    if (failed) atomicAdd(cells + i / t.width / t.cell_height * t.cell_columns + i % t.width / t.cell_width, 1ull);
    if (blockIdx.x < shown) failing[blockIdx.x * t.tile + (i - begin)] = failed != 0;
  }
}

// ---- peers ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float reciprocal(float x) {
#ifdef KERNEL_ASSAY
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

struct Single {
  enum { KIND = FLOAT32, PARTS = 1, DIGITS = 23 };
  static constexpr u32 SIGNS = 0x80000000u, EXPONENTS = 0x7f800000u;
  static constexpr float GROW = 1073741824.0f;  // 2**30: errors of numbers near 1 have squares near 2**-48
  static constexpr float HALF = 5.9604644775390625e-8f;
  static constexpr bool PACKED = false;
  static __device__ __forceinline__ void split(u32 word, float* parts) { parts[0] = __uint_as_float(word); }
  static __device__ __forceinline__ u32 apart(u32 x, u32 y) { return __usad(x, y, 0); }
  static __device__ __forceinline__ u32 most(u32 x, u32 y) { return max(x, y); }
  static __device__ __forceinline__ u32 largest(u32 x) { return x; }
  static __device__ __forceinline__ u32 peak(u32 known, u32 word) {
    return __float_as_uint(fmaxf(__uint_as_float(known), fabsf(__uint_as_float(word))));
  }
};

struct Packed {  // two numbers of 16 bits in a word
  enum { PARTS = 2 };
  static constexpr u32 SIGNS = 0x80008000u;
  static constexpr float GROW = 1.0f;
  static constexpr bool PACKED = true;
  static __device__ __forceinline__ u32 apart(u32 x, u32 y) { return __vmaxu2(x, y) - __vminu2(x, y); }
  static __device__ __forceinline__ u32 most(u32 x, u32 y) { return __vmaxu2(x, y); }
  static __device__ __forceinline__ u32 largest(u32 x) { return max(x & 0xffffu, x >> 16); }
};

// Bytes of a table of eight, for the low four nibbles.
__device__ __forceinline__ u32 chosen(u32 low, u32 high, u32 nibbles) {
#ifdef KERNEL_ASSAY
  return __byte_perm(low, high, nibbles);
#else
  u32 bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
#endif
}

#ifdef KERNEL_ASSAY
// For the emulator, which has no packed floats: what does not fit is cut off, and a NaN, as of 0 * Inf, is 0.
template <class F>
__device__ __forceinline__ u32 pack(float low, float high) {
  return (low == low ? F::cut(low) : 0) | (high == high ? F::cut(high) : 0) << 16;
}
#endif

struct Half : Packed {
  enum { KIND = FLOAT16, DIGITS = 10 };
  static constexpr u32 EXPONENTS = 0x7c007c00u;
  static constexpr float HALF = 4.8828125e-4f;
  static constexpr u32 LEAST_NORMAL = 0x400, LEAST_PEAK = 1, MOST_PEAK = 0x7800, LEAST_AWAY = 1;  // patterns
  static constexpr float TINY = 4.76837158203125e-7f;                       // 2**-21
#ifdef KERNEL_ASSAY
  static __device__ u32 cut(float x) {
    float size = fabsf(x);
    u32 bits = size < 6.103515625e-5f ? (u32)(size * 16777216.0f) : (__float_as_uint(size) >> 13) - 0x1c000u;
    return (size >= 65536.0f ? 0x7c00u : bits) | (x < 0.0f ? 0x8000u : 0);
  }
  static __device__ void split(u32 word, float* parts) {
    parts[0] = from_half(word & 0xffffu), parts[1] = from_half(word >> 16);
  }
  static __device__ u32 minus(u32 x, u32 y) {
    return pack<Half>(from_half(x & 0xffffu) - from_half(y & 0xffffu), from_half(x >> 16) - from_half(y >> 16));
  }
  static __device__ u32 times(u32 x, u32 y) {
    return pack<Half>(from_half(x & 0xffffu) * from_half(y & 0xffffu), from_half(x >> 16) * from_half(y >> 16));
  }
  static __device__ u32 beyond_cell(u32 error, u32 power) {
    float low = from_half(power & 0xffffu) * HALF, high = from_half(power >> 16) * HALF;
    low = from_half(error & 0xffffu) - low, high = from_half(error >> 16) - high;
    return pack<Half>(fmaxf(low, 0.0f), fmaxf(high, 0.0f));  // `larger` below has no signs
  }
  static __device__ u32 larger_or_nan(u32 x, u32 y) { return __vmaxu2(x, y); }
  static __device__ u32 size(u32 x) { return x & ~SIGNS; }
  static __device__ u32 larger(u32 x, u32 y) { return __vmaxu2(x, y); }
  static __device__ u32 smaller(u32 x, u32 y) { return __vminu2(x, y); }
#else
  static __device__ __forceinline__ void split(u32 word, float* parts) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(parts[0]), "=f"(parts[1]) : "r"(word));
  }
  static __device__ __forceinline__ u32 minus(u32 x, u32 y) {
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 times(u32 x, u32 y) {
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 beyond_cell(u32 error, u32 power) {  // less 2**-11 of the power
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(error) : "r"(power), "r"(0x90009000u));
    return error;
  }
  static __device__ __forceinline__ u32 larger_or_nan(u32 x, u32 y) {
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 size(u32 x) {
    asm("abs.f16x2 %0, %0;" : "+r"(x));
    return x;
  }
  static __device__ __forceinline__ u32 larger(u32 x, u32 y) {
    asm("max.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 smaller(u32 x, u32 y) {
    asm("min.f16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
#endif
  static __device__ __forceinline__ u32 peak(u32 known, u32 word) { return larger_or_nan(known, size(word)); }
};

struct Brain : Packed {
  enum { KIND = BFLOAT16, DIGITS = 7 };
  static constexpr u32 EXPONENTS = 0x7f807f80u;
  static constexpr float HALF = 3.90625e-3f;
  static constexpr u32 LEAST_NORMAL = 0x80;
  static constexpr u32 LEAST_PEAK = 0x2b80, MOST_PEAK = 0x5b80, LEAST_AWAY = 0x2980;  // 2**-40, 2**56, 2**-44
  static constexpr float TINY = 2.5243548967072378e-29f;                              // 2**-95
  static __device__ __forceinline__ void split(u32 word, float* parts) {
    parts[0] = __uint_as_float(word << 16), parts[1] = __uint_as_float(word & 0xffff0000u);
  }
#ifdef KERNEL_ASSAY
  static __device__ u32 cut(float x) { return __float_as_uint(x) >> 16; }
  static __device__ u32 minus(u32 x, u32 y) {
    float a[2], b[2];
    split(x, a), split(y, b);
    return pack<Brain>(a[0] - b[0], a[1] - b[1]);
  }
  static __device__ u32 times(u32 x, u32 y) {
    float a[2], b[2];
    split(x, a), split(y, b);
    return pack<Brain>(a[0] * b[0], a[1] * b[1]);
  }
  static __device__ u32 beyond_cell(u32 error, u32 power) {
    float e[2], p[2];
    split(error, e), split(power, p);
    return pack<Brain>(fmaxf(e[0] - p[0] * HALF, 0.0f), fmaxf(e[1] - p[1] * HALF, 0.0f));  // `larger` has no signs
  }
  static __device__ u32 larger_or_nan(u32 x, u32 y) { return __vmaxu2(x, y); }
  static __device__ u32 size(u32 x) { return x & ~SIGNS; }
  static __device__ u32 larger(u32 x, u32 y) { return __vmaxu2(x, y); }
  static __device__ u32 smaller(u32 x, u32 y) { return __vminu2(x, y); }
#else
  // By fma, for only sm_90 has sums and products.
  static __device__ __forceinline__ u32 minus(u32 x, u32 y) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(x) : "r"(y), "r"(0xbf80bf80u));
    return x;
  }
  static __device__ __forceinline__ u32 times(u32 x, u32 y) {
    asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(SIGNS));
    return x;
  }
  static __device__ __forceinline__ u32 beyond_cell(u32 error, u32 power) {  // less 2**-8 of the power
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(error) : "r"(power), "r"(0xbb80bb80u));
    return error;
  }
  static __device__ __forceinline__ u32 larger_or_nan(u32 x, u32 y) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 size(u32 x) {
    asm("abs.bf16x2 %0, %0;" : "+r"(x));
    return x;
  }
  static __device__ __forceinline__ u32 larger(u32 x, u32 y) {
    asm("max.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
  static __device__ __forceinline__ u32 smaller(u32 x, u32 y) {
    asm("min.bf16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
    return x;
  }
#endif
  static __device__ __forceinline__ u32 peak(u32 known, u32 word) { return larger_or_nan(known, size(word)); }
};

// A largest value that has been met, exactly, and the first tile that has it.
template <class T>
struct Found {
  T value;
  u32 tile;
  __device__ __forceinline__ void see(T v, u32 in) {
    if (v > value) value = v, tile = in;
  }
};

// What one thread keeps.
struct Kept {
  double ee, rr, yy;
  u32 peak;
  u32 counts[4];  // distances of 1, 2, 3 to 4 and 5 to 7
  u32 again;      // no glance before this turn, after one that was of no use
};

// Likewise the largest values, where they are not those of Looked.
struct Largest {
  Found<float> away;  // errors that float32 holds
  Found<u32> steps;
  float ulps;  // errors in ulps that float32 holds
};

// Up to where a glance at 16-bit numbers suffices: no record is larger, and what equals one comes after it.
struct alignas(16) Limits {
  u32 steps;           // as to relative errors, to steps, and to errors in ulps
  u32 few;             // as to rho, with excesses up to `excess`
  float excess;
  float away;
  float error, slope;  // of the budget times the floor of rho
  u32 ratio;           // steps as to relative errors alone
};

// What a warp has found where it looked twice.
struct Looked {
  Limits limits;
  Found<double> rel, rho, abs;
  Found<u32> steps;
  double ulps;
  float close;  // a relative error that is no larger is no new record, if it is of few bits
  float flat;   // likewise an excess, if the budget is one number
  // The pair with the largest rho that was met before, if it is of few bits: its excess, that by abs(want), abs(want),
  // and rho. Who has no more of the first two, or no more of the first and no less of the third, has no larger rho.
  float excess, share, want;
  double part;
  u32 pair;  // the one that was found last: got, and want above it
  u32 missed, slow, far;  // tiles that were left to walk, or added without a glance; chunks counted one by one
  u32 trust;              // tiles that got no glance after the last one that was of no use
};

// One lane's pairs of a tile: where they lie in memory, for a second look. A vector of 16 bytes comes after the other.
#define WORDS 16  // of each tensor, in each lane
template <class F>
struct Chunk {
  enum { SIZE = WORDS * F::PARTS, VECTOR = 4 * F::PARTS };
  u64 got, want;  // addresses
  __device__ __forceinline__ Chunk of(int lane) const {
    u64 further = (u64)(i64)(lane - (int)(threadIdx.x % 32)) * 16;
    return {got + further, want + further};
  }
  __device__ __forceinline__ u64 place(int k) const { return (u64)(k / VECTOR) * (32 * VECTOR) + k % VECTOR; }
  __device__ __forceinline__ u32 bits(u64 base, int k) const { return (u32)bits_at(base, F::KIND, place(k)); }
  static __device__ __forceinline__ float real_of(u32 b) {
    return F::KIND == FLOAT32 ? __uint_as_float(b) : F::KIND == FLOAT16 ? from_half(b) : (float)from_brain(b);
  }
  __device__ __forceinline__ u32 steps(int k) const {
    const u32 sign = F::KIND == FLOAT32 ? 0x80000000u : 0x8000u;
    u32 x = bits(got, k), y = bits(want, k), mx = x & ~sign, my = y & ~sign;
    return (x ^ y) & sign ? mx + my : max(mx, my) - min(mx, my);
  }
};

#define SLACK 0.999998f  // 1 - 2**-19: more than float32 and an approximate reciprocal may be off by
#define MORE 1.000002f
#define EXACT 0.499f  // below such a relative error, got - want is exact (Sterbenz)
#define FEW 64        // distances below it are few bits
#define ROUNDED 1.016f  // more than an error that is rounded to the 8 bits of bfloat16 may be short of
#define INFINITE __uint_as_float(0x7f800000u)

// The largest of(got, want) in the chunks of some lanes, by all lanes of the warp: >= 0.
// looked: null, or where that pair shall be noted, of several the one with the largest want.
template <class F, class Of>
__device__ __forceinline__ double largest(Chunk<F> c, u32 lanes, Of of, Looked* looked = nullptr) {
  double most = 0.0;
  float want = 0.0f;
  u32 pair = 0;
  for (; lanes; lanes &= lanes - 1) {
    Chunk<F> one = c.of(__ffs((int)lanes) - 1);
    const int k = threadIdx.x % 32;
    if (k >= one.SIZE) continue;
    const u32 left = one.bits(one.got, k), right = one.bits(one.want, k);
    float g = one.real_of(left), w = one.real_of(right);
    double value = of(g, w);
    if (value > most || (value == most && fabsf(w) > fabsf(want))) most = value, want = w, pair = right << 16 | left;
  }
  if (!__any_sync(ALL, most > 0.0)) return 0.0;
  // Patterns are ordered as their numbers, which are no NaN.
  u64 mine = (u64)pattern(most);
  u32 high = __reduce_max_sync(ALL, (u32)(mine >> 32));
  u32 low = __reduce_max_sync(ALL, (u32)(mine >> 32) == high ? (u32)mine : 0u);
  u64 found = (u64)high << 32 | low;
  if (looked) {
    u32 size = mine == found ? __float_as_uint(fabsf(want)) : 0u, top = __reduce_max_sync(ALL, size);
    u32 lane = __ffs((int)__ballot_sync(ALL, mine == found && size == top)) - 1;
    if (threadIdx.x % 32 == lane) looked->pair = pair;
    __syncwarp();
  }
  return real((i64)found);
}

// The largest relative error, if it is not below the floor.
template <class F>
__device__ __forceinline__ double largest_ratio(Chunk<F> c, u32 lanes, float floor, Looked* looked) {
  return largest<F>(c, lanes, [=](float g, float w) {
    if (w == 0.0f || fabsf((g - w) * reciprocal(w)) < floor) return 0.0;
    double a = g, b = w;
    return fabs(a - b) / fabs(b);
  }, F::PACKED ? looked : nullptr);
}

// The largest rho, if it is not below the floor.
template <class F>
__device__ __forceinline__ double largest_rho(const Task& t, Chunk<F> c, u32 lanes, float floor, Looked* looked) {
  const float error = (float)t.error, slope = (float)t.slope, least = (float)t.least, tiny = 1e-30f;
  const Task* task = &t;
  return largest<F>(c, lanes, [=](float g, float w) {
    float e = fabsf(g - w);
    // At most its cell, for a power of two has a narrower one below it; what is too small for this is looked at.
    float cell = __uint_as_float((__float_as_uint(g) - 1) & 0x7f800000u) * F::HALF;
    bool close = e - cell >= floor * (error + slope * fabsf(w));
    if (!(e > 0.0f && (close || e < tiny || fabsf(g) <= least))) return 0.0;
    double r = w, excess = fmax(raw_excess(g, r, task->half, task->least), 0.0);
    double room = task->error + task->slope * fabs(r);
    return excess <= 0.0 ? 0.0 : room > 0.0 ? excess / room : real(EXPONENT);
  }, F::PACKED ? looked : nullptr);
}

// The largest error, which float32 may not hold.
template <class F>
__device__ __noinline__ double largest_error(Chunk<F> c, u32 lanes) {
  return largest<F>(c, lanes, [](float g, float w) { return fabs((double)g - (double)w); });
}

// The same in ulps, where binades or signs differ.
template <class F>
__device__ __noinline__ double largest_ulps(const Task& t, Chunk<F> c, u32 lanes) {
  const Task* task = &t;
  return largest<F>(c, lanes, [=](float g, float w) {
    double a = g, b = w;
    return fabs(a - b) / ulp_of(*task, b);
  });
}

// Distances of the pairs of some lanes' chunks, one by one, where some are long.
template <class F>
__device__ __forceinline__ void count_far(Chunk<F> c, u32 lanes, u32* far) {
  for (; lanes; lanes &= lanes - 1) {
    Chunk<F> one = c.of(__ffs((int)lanes) - 1);
    const int k = threadIdx.x % 32;
    if (k < one.SIZE) atomicAdd(&far[bucket(one.steps(k)) * 32 + k], 1u);
  }
}

// The largest of them in this lane's chunk, if it is one of those, else what is known.
template <class F>
__device__ __noinline__ u32 farthest(Chunk<F> c, u32 lanes, u32 known) {
  for (; lanes; lanes &= lanes - 1) {
    const int k = threadIdx.x % 32, lane = __ffs((int)lanes) - 1;
    Chunk<F> one = c.of(lane);
    u32 most = __reduce_max_sync(ALL, k < one.SIZE ? one.steps(k) : 0u);
    if (k == lane) known = most;
  }
  return known;
}

// Budgets as float32 has them.
struct Budget {
  float error, slope;
};

// What a lane has seen in its chunk: the largest error (or a little more, where the relative one is not below EXACT),
// relative error, distance and error in ulps of got and of want, and in which bits pairs differ.
struct Seen {
  float away, ratio;
  u32 steps, differ;
  float of_got, of_want;
};

// A lane's words of a tile.
struct Words {
  u32 x[WORDS], y[WORDS];
};

// What all lanes of a warp share.
struct Shared {
  Floors* floors;
  Looked* looked;
  u32* notes;
  u32 turn;  // of the warps of all blocks: any tile of an earlier one comes before any of this
  __device__ __forceinline__ void note(int what) const {
    if (threadIdx.x % 32 == 0) atomicAdd(notes + what, 1u);
  }
};

#define MOST_SKIPPED 7u
#define MOST_LOOKS 20  // at lanes of a tile: beyond, to look at all is as fast
#define NEAR 7  // distances below it are counted two at a time, in a table of pairs
#define FAR 34  // buckets that distances of 32 bits may need

// The larger of the numbers of a word.
template <class F>
__device__ __forceinline__ float larger_part(u32 word) {
  float parts[F::PARTS];
  F::split(word, parts);
  return fmaxf(parts[0], parts[F::PARTS - 1]);
}

// At most 1 - cell / error of any pair: an error of n ulps of got has a cell of half a step.
template <class F>
__device__ __forceinline__ float beyond(const Seen& s, bool crossing) {
  if (!F::PACKED) return 1.0f - (crossing ? 0.25f : 0.5f) * reciprocal((float)s.steps);
  return s.ratio < EXACT ? 1.0f - 0.5f * reciprocal(fmaxf(s.of_got, (float)s.steps)) : 1.0f;
}

// Numbers of at most 10 bits, as excesses of FEW steps are, differ by more than 2**-11 of themselves; 0 if this has
// more.
__device__ __forceinline__ float if_few_bits(float x) { return __float_as_uint(x) & 0x3fffu ? 0.0f : x; }

// Take over what another warp met, if it is more; by one lane.
__device__ __forceinline__ void adopt(const Task& t, i64 kind, int what, u64 word, Looked& looked) {
  const Pair p = pair_of(t, kind, what, word);
  if (what == OF_REL) {
    looked.close = fmaxf(looked.close, (float)p.value * MORE);
  } else if (of_few_bits(t, p) && (p.value > looked.part || (p.value == looked.part && p.excess > looked.excess))) {
    looked.part = p.value, looked.excess = (float)p.excess, looked.want = (float)fabs(p.want);
    looked.share = __double2float_rz(t.slope == 0.0 ? real(EXPONENT) : p.excess / fabs(p.want));
    if (t.slope == 0.0) looked.flat = fmaxf(looked.flat, if_few_bits(looked.excess) * 1.00048828125f);
  }
}

// The limits of what is known; by one lane.
template <class F>
__device__ __forceinline__ void set_limits(const Task& t, const Shared& all) {
  Looked& looked = *all.looked;
  const Reached& known = *(const Reached*)t.floors;
  const float scale = (float)(1 << F::DIGITS);
  float floor = __uint_as_float(*(volatile u32*)&all.floors->rel) * SLACK;
  // The most steps n with n / scale < floor, or of few bits, <= close.
  const int below = (int)ceilf(fminf(floor * scale, scale)) - 1, ties = (int)fminf(looked.close * scale, FEW - 1.0f);
  Limits limits;
  limits.ratio = (u32)max(max(below, ties), 0);
  // Errors of n steps are less than 2 n ulps: more steps than any before are more than this, too.
  const double ulps = fmax(looked.ulps, (double)__uint_as_float(known.ulps));
  limits.steps = min(limits.ratio, (u32)fmin((ulps + 1.0) * 0.5, 65535.0));
  limits.few = (u32)fmin((double)looked.share * scale + 0.5, GLANCED - 1.0), limits.excess = looked.excess;
  limits.away = fmaxf(__double2float_rz(looked.abs.value), __uint_as_float(known.away));
  floor = fminf(__uint_as_float(*(volatile u32*)&all.floors->rho), 1.0f) * SLACK;
  limits.error = floor * (float)t.error, limits.slope = floor * (float)t.slope;
  looked.limits = limits;
}

// What others have reached, where that comes before the tiles of this turn.
template <class F>
__device__ __forceinline__ void hear(const Task& t, const Shared& all) {
  __syncwarp();  // others have read the limits: a vote alone orders no memory
  if (threadIdx.x % 32 == 0) {
    Reached* known = (Reached*)t.floors;
    atomicMax(&all.floors->rel, *(volatile u32*)&known->floors.rel);
    atomicMax(&all.floors->rho, *(volatile u32*)&known->floors.rho);
    for (int what = OF_REL; what <= OF_RHO; ++what) {
      const u64 word = *(volatile u64*)&known->pairs[what];
      if (word && (u32)(word >> 32) < all.turn) adopt(t, F::KIND, what, word, *all.looked);
    }
    set_limits<F>(t, all);
  }
  __syncwarp();
}

// The second looks at ratios; lanes: whose chunks may have a record.
template <class F>
__device__ __forceinline__ void look_at_ratios(const Task& t, Chunk<F> c, u32 lanes, u32 tile, float floor,
                                               const Shared& all) {
  double ratio = largest_ratio<F>(c, lanes, floor, all.looked);
  __syncwarp();
  if (threadIdx.x % 32 == 0 && ratio > all.looked->rel.value) {
    all.looked->rel.see(ratio, tile);
    all.looked->close = fmaxf(all.looked->close, (float)ratio * MORE);
    raise_floor(&all.floors->rel, ratio);
    if constexpr (F::PACKED) {
      raise_floor(&((Reached*)t.floors)->floors.rel, ratio);
      offer(t, F::KIND, OF_REL, word_of(all.turn, all.looked->pair));
    }
  }
  __syncwarp();
  all.note(LOOK_REL);
}

// Likewise at rho; true if all are within the budget.
template <class F>
__device__ __forceinline__ bool look_at_rho(const Task& t, Chunk<F> c, u32 lanes, u32 tile, float floor,
                                            const Shared& all) {
  double rho = largest_rho<F>(t, c, lanes, floor, all.looked);
  __syncwarp();
  if (F::PACKED && threadIdx.x % 32 == 0 && rho > 0.0 && rho >= all.looked->part) {
    const u64 word = word_of(all.turn, all.looked->pair);
    adopt(t, F::KIND, OF_RHO, word, *all.looked);
    offer(t, F::KIND, OF_RHO, word);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0 && rho > all.looked->rho.value) {
    all.looked->rho.see(rho, tile);
    if (t.slope == 0.0 && rho <= 1.0)
      all.looked->flat = fmaxf(all.looked->flat, if_few_bits((float)(rho * t.error)) * 1.00048828125f);
    raise_floor(&all.floors->rho, rho);
    if (F::PACKED) raise_floor(&((Reached*)t.floors)->floors.rho, rho);
  }
  __syncwarp();
  all.note(LOOK_RHO);
  return rho <= 1.0;
}

// The largest errors, and those in ulps, which this lane knows or all look for.
template <class F>
__device__ __forceinline__ void see_errors(const Task& t, Chunk<F> c, const Seen& s, bool crossing, u32 tile,
                                           Largest& kept, const Shared& all) {
  bool exact = s.ratio < EXACT;
  if (exact) kept.away.see(s.away, tile);
  // Rounding keeps the order: what is rounded below a known value lies below it.
  bool unknown = !exact && s.away >= fmaxf(kept.away.value, (float)all.looked->abs.value);
  if (u32 lanes = __ballot_sync(ALL, unknown)) {
    double error = largest_error<F>(c, lanes);
    __syncwarp();
    if (threadIdx.x % 32 == 0) all.looked->abs.see(error, tile);
    all.note(LOOK_ABS);
  }
  bool known = !crossing || (F::PACKED && exact && s.of_want < INFINITE);
  if (known) kept.ulps = fmaxf(kept.ulps, crossing ? s.of_want : (float)s.steps);
  // Of two neighbouring binades the upper one has ulps of two steps of the lower one.
  float most = fmaxf(kept.ulps, (float)all.looked->ulps);
  bool more = s.steps >> F::DIGITS || (float)s.steps * 2.0f - 1.0f > most;
  if (F::PACKED) more = more && s.of_want * ROUNDED >= most;
  if (u32 lanes = __ballot_sync(ALL, !known && more)) {
    double ulps = largest_ulps<F>(t, c, lanes);
    __syncwarp();
    if (threadIdx.x % 32 == 0) all.looked->ulps = fmax(all.looked->ulps, ulps);
    all.note(LOOK_ULPS);
  }
  __syncwarp();
}

// What a tile with differences adds to the records, by all lanes. False if it fails, or may.
template <class F>
__device__ __forceinline__ bool see_records(const Task& t, Chunk<F> c, Budget budget, const Seen& s, u32 tile,
                                            Largest& kept, const Shared& all) {
  const bool crossing = s.differ & (F::SIGNS | F::EXPONENTS), differs = s.away > 0.0f;
  float floor = __uint_as_float(*(volatile u32*)&all.floors->rel) * SLACK;
  // Different ratios of few bits differ by more than 2**-19: what is no larger than what was looked at is a tie.
  bool tie = F::PACKED && s.steps < FEW && s.ratio <= all.looked->close;
  if (u32 lanes = __ballot_sync(ALL, differs && s.ratio >= floor && !tie))
    look_at_ratios<F>(t, c, lanes, tile, floor, all);
  floor = fminf(__uint_as_float(*(volatile u32*)&all.floors->rho), 1.0f) * SLACK;
  // excess / allowed is at most 1 / (error / away + slope / ratio), less half a step of the fewest that may be.
  float room = budget.error * reciprocal(s.away) + budget.slope * reciprocal(s.ratio), part = beyond<F>(s, crossing);
  tie = s.steps < FEW && part * s.away <= all.looked->flat;
  bool fine = true;
  if (u32 lanes = __ballot_sync(ALL, differs && !tie && !(part < floor * room)))
    fine = look_at_rho<F>(t, c, lanes, tile, floor, all);
  if (__any_sync(ALL, differs)) see_errors<F>(t, c, s, crossing, tile, kept, all);
  if (differs) kept.steps.see(s.steps, tile);
  return fine;
}

// got, want: of tile 1.
template <class F>
__device__ __forceinline__ Chunk<F> chunk_of(const char* got, const char* want, u32 tile) {
  const u64 offset = (u64)(tile - 1) * (32 * WORDS * 4) + threadIdx.x % 32 * 16;
  return {(u64)(got + offset), (u64)(want + offset)};
}

template <class F>
__device__ __forceinline__ Words load(Chunk<F> chunk) {
  const uint4 *left = (const uint4*)chunk.got, *right = (const uint4*)chunk.want;
  Words words;
#pragma unroll
  for (int v = 0; v < WORDS / 4; ++v) {
    uint4 a = left[v * 32], b = right[v * 32];
    u32 *x = words.x + 4 * v, *y = words.y + 4 * v;
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, y[0] = b.x, y[1] = b.y, y[2] = b.z, y[3] = b.w;
  }
  return words;
}

struct Squares {
  float ee, rr, yy;
};

// Sums of squares of a lane's pairs: an error that 16 bits hold is taken from there, and got is want and that.
template <class F>
struct Summed {
  float ee[2], re[2], rr[2];
  __device__ __forceinline__ void add(u32 error, u32 want) {
    float e[2], r[2];
    F::split(error, e), F::split(want, r);
#pragma unroll
    for (int p = 0; p < 2; ++p)
      ee[p] = fmaf(e[p], e[p], ee[p]), re[p] = fmaf(r[p], e[p], re[p]), rr[p] = fmaf(r[p], r[p], rr[p]);
  }
  __device__ __forceinline__ void add(u32 want) {
    float r[2];
    F::split(want, r);
#pragma unroll
    for (int p = 0; p < 2; ++p) rr[p] = fmaf(r[p], r[p], rr[p]);
  }
  __device__ __forceinline__ Squares squares() const {
    const float e2 = ee[0] + ee[1], r2 = rr[0] + rr[1];
    return {e2, r2, fmaf(2.0f, re[0] + re[1], r2 + e2)};
  }
};

// What a glance knows of the pairs of a lane's chunk, at most; least: the least abs(want) of those that differ.
struct Glimpse {
  u32 differ, steps;
  float excess, away, least;
};

struct Ruled {
  bool rel, rho;
};

// Whether rho is no record, for excesses of n - 1/2 steps of normal numbers, at most. It has no branch.
template <class F>
__device__ __forceinline__ bool no_rho(u32 steps, float excess, const Limits& limits) {
  const float unit = 1.0f / (float)(1 << F::DIGITS), share = (float)steps * unit - 0.5f * unit;
  return (steps <= limits.few & excess <= limits.excess) |
         (limits.error * share + limits.slope * excess > excess * share);
}

// Whether no pair of a chunk can be a new record of relative errors, or of rho. Where want may be below the normal
// numbers, errors of n steps are n times the least of all.
template <class F>
__device__ __forceinline__ Ruled ruled_out(const Glimpse& g, const Shared& all) {
  const Looked& looked = *all.looked;
  const Limits& limits = looked.limits;
  Ruled out = {g.steps <= limits.ratio, no_rho<F>(g.steps, g.excess, limits)};
  if (g.least < larger_part<F>(F::LEAST_NORMAL)) {
    const float eta = larger_part<F>(1u), steps = (float)g.steps;
    const float ratio = steps * eta / g.least, excess = (steps - 0.5f) * eta;
    const float floor = __uint_as_float(*(volatile u32*)&all.floors->rel) * SLACK;
    out.rel = out.rel && (ratio < floor || (g.steps < FEW && ratio <= looked.close));
    const bool tie = g.steps < GLANCED && excess <= looked.excess && g.least >= looked.want;
    out.rho = out.rho && (tie || limits.error + limits.slope * g.least > excess);
  }
  return {out.rel || !g.differ, out.rho || !g.differ};
}

// What to do with a tile: another, slower look at all of it, leave it to walk, or add it to what is kept.
enum { UNCLEAR, LEFT, ADDED };

// An ordinary tile that may have a record: what others have reached may tell, else a look at the lanes in doubt.
template <class F>
__device__ __forceinline__ int settle(const Task& t, Chunk<F> chunk, u32 tile, Glimpse g, const Shared& all) {
  u32 of_want = 0;
  g.least = INFINITE;
  {
    const Words words = load(chunk);
    const u32 most = F::EXPONENTS & (F::EXPONENTS << 1);  // the ulp of the least normal number is that of lesser ones
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
      const u32 e = F::size(F::minus(words.x[w], words.y[w]));
      of_want = F::larger(of_want, F::times(e, __vminu2(~words.y[w] & F::EXPONENTS, most)));
      float parts[2], wants[2];
      F::split(e, parts), F::split(words.y[w], wants);
      for (int p = 0; p < 2; ++p) g.least = parts[p] > 0.0f ? fminf(g.least, fabsf(wants[p])) : g.least;
    }
  }
  Ruled out = ruled_out<F>(g, all);
  if (__any_sync(ALL, !(out.rel && out.rho))) {
    all.note(NO_GLANCE);
    hear<F>(t, all);
    out = ruled_out<F>(g, all);
    const u32 ratios = __ballot_sync(ALL, !out.rel), rhos = __ballot_sync(ALL, !out.rho);
    if (__popc(ratios) + __popc(rhos) > MOST_LOOKS) return UNCLEAR;
    float floor = __uint_as_float(*(volatile u32*)&all.floors->rel) * SLACK;
    if (ratios) look_at_ratios<F>(t, chunk, ratios, tile, floor, all);
    floor = fminf(__uint_as_float(*(volatile u32*)&all.floors->rho), 1.0f) * SLACK;
    if (rhos && !look_at_rho<F>(t, chunk, rhos, tile, floor, all)) {
      all.note(FAILING);
      return LEFT;
    }
  }
  // Patterns are ordered as their numbers.
  const float mine = larger_part<F>(of_want) * (float)(1 << (F::DIGITS - 1));
  const u32 ulps = __reduce_max_sync(ALL, __float_as_uint(mine)), steps = __reduce_max_sync(ALL, g.steps);
  const u32 away = __reduce_max_sync(ALL, __float_as_uint(g.away));
  __syncwarp();  // as in hear
  if (threadIdx.x % 32 == 0) {
    Looked& looked = *all.looked;
    looked.abs.see(__uint_as_float(away), tile), looked.steps.see(steps, tile);
    looked.ulps = fmax(looked.ulps, (double)__uint_as_float(ulps));
    set_limits<F>(t, all);
  }
  __syncwarp();
  return ADDED;
}

// All pairs of a tile at once, two in a word, by bounds that ordinary noise does not reach.
//
// Below 2**DIGITS steps of one sign, got - want is exact. By n steps of an ordinary want, errors are at most n ulps of
// a power of two that is not above it, and excesses at most n - 1/2: so that neither is a larger part of want than of
// that power. The cell of the smaller of both is no wider than that of got, and the bound still holds for it.
template <class F>
__device__ __forceinline__ int glance(const Task& t, Chunk<F> chunk, const Words& words, u32 tile, Kept& kept, u32* far,
                                      const Shared& all) {
  const u32 *x = words.x, *y = words.y;
  u32 differ = 0, peak = 0, least = F::EXPONENTS;
#pragma unroll
  for (int w = 0; w < WORDS; ++w) differ |= x[w] ^ y[w], peak = F::peak(peak, y[w]);
  const u32 size = F::largest(peak);
  bool ordinary = size == 0 || (size >= F::LEAST_PEAK && size < F::MOST_PEAK);
  const bool some = __any_sync(ALL, differ);
  u32 steps = 0;
  Squares added;
  if (some) {
    Summed<F> sums = {};
    u32 gap = 0, most_away = 0, most_beyond = 0, low_counts = 0, high_counts = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w += 2) {
      u32 apart[2], e[2], beyond[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const u32 a = x[w + k], b = y[w + k], error = F::minus(a, b), low = __vminu2(a, b);
        sums.add(error, b);
        apart[k] = __vmaxu2(a, b) - low;
        e[k] = F::size(error);
        beyond[k] = F::beyond_cell(e[k], low & F::EXPONENTS);
      }
      most_away = F::larger(most_away, F::larger(e[0], e[1]));
      most_beyond = F::larger(most_beyond, F::larger(beyond[0], beyond[1]));
      least = F::smaller(least, F::smaller(F::size(y[w]), F::size(y[w + 1])));
      gap = F::most(F::most(gap, apart[0]), apart[1]);
      u32 both = apart[0] + (apart[1] << 8), nibbles = both + (both >> 12);
      low_counts = (u32)__dp4a((int)chosen(0x00400100u, 0u, nibbles), 0x01010101, (int)low_counts);
      high_counts = (u32)__dp4a((int)chosen(0x01000000u, 0x40404001u, nibbles), 0x01010101, (int)high_counts);
    }
    added = sums.squares();
    steps = F::largest(gap);
    const u32 error = F::largest(most_away);
    const float away = larger_part<F>(most_away);
    ordinary = ordinary && !(differ & F::SIGNS) && !(steps >> F::DIGITS) && (!error || error >= F::LEAST_AWAY);
    float excess = larger_part<F>(most_beyond) * (steps < GLANCED ? 1.0f : ROUNDED);
    excess = fmaxf(excess, (float)steps * F::TINY);
    const Limits limits = all.looked->limits;
    const bool normal = !differ | (__vminu2(least, least >> 16) & 0xffffu) >= F::LEAST_NORMAL;
    if (!__all_sync(ALL, ordinary & normal & (steps <= limits.steps) & (away <= limits.away) &
                             no_rho<F>(steps, excess, limits))) {
      if (!__all_sync(ALL, ordinary)) {
        all.note(NO_GLANCE);
        return UNCLEAR;
      }
      const int how = settle<F>(t, chunk, tile, {differ, steps, excess, away}, all);
      if (how != ADDED) return how;
    }
    if (steps < 8) {
      kept.counts[0] += low_counts & 63, kept.counts[1] += low_counts >> 6;
      kept.counts[2] += high_counts & 63, kept.counts[3] += high_counts >> 6;
    }
  } else {
    if (!__all_sync(ALL, ordinary)) {
      all.note(NO_GLANCE);
      return UNCLEAR;
    }
    Summed<F> sums = {};
#pragma unroll
    for (int w = 0; w < WORDS; ++w) sums.add(y[w]);
    added = sums.squares();
  }
  kept.ee += added.ee, kept.rr += added.rr, kept.yy += added.yy, kept.peak = F::peak(kept.peak, peak);
  if (u32 lanes = __ballot_sync(ALL, steps >= 8)) {
    count_far<F>(chunk, lanes, far);
    all.note(LOOK_FAR);
    if (threadIdx.x % 32 == 0) all.looked->far += __popc(lanes);
  }
  return ADDED;
}

// One tile: true if it was added to `kept` and the tables, false if walk must see it.
template <class F>
__device__ __forceinline__ bool tally(const Task& t, Chunk<F> chunk, Words& words, Budget budget, u32 tile, Kept& kept,
                                      Largest& largest, u32* near_pairs, u32* far, const Shared& all) {
  const u32 lane = threadIdx.x % 32;
  u32 *x = words.x, *y = words.y;
  float ee[4] = {}, rr[4] = {}, yy[4] = {};
  Seen s = {};
  u32 peak = 0, away = 0, of_got = 0, of_want = 0;
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    float a[F::PARTS], b[F::PARTS];
    F::split(x[w], a), F::split(y[w], b);
    s.differ |= x[w] ^ y[w];
    peak = F::peak(peak, y[w]);
    if constexpr (F::PACKED) {  // all bits of an exponent turned over: that of twice the reciprocal
      const u32 e = F::size(F::minus(x[w], y[w]));
      away = F::larger(away, e);
      of_got = F::larger(of_got, F::times(e, ~x[w] & F::EXPONENTS));
      of_want = F::larger(of_want, F::times(e, ~y[w] & F::EXPONENTS));
    }
    x[w] = F::apart(x[w], y[w]);  // what follows wants no more than the distance
    s.steps = F::most(s.steps, x[w]);
#pragma unroll
    for (int p = 0; p < F::PARTS; ++p) {
      const int sum = (w * F::PARTS + p) % 4;
      float e = a[p] - b[p], grown = e * F::GROW;
      ee[sum] = fmaf(grown, grown, ee[sum]), rr[sum] = fmaf(b[p], b[p], rr[sum]), yy[sum] = fmaf(a[p], a[p], yy[sum]);
      if constexpr (!F::PACKED) s.away = fmaxf(s.away, fabsf(e));
      s.ratio = fmaxf(s.ratio, fabsf(e * reciprocal(b[p])));
    }
  }
  if constexpr (F::PACKED) s.away = larger_part<F>(away) * (s.ratio < EXACT ? 1.0f : ROUNDED);
  float e2 = (ee[0] + ee[1]) + (ee[2] + ee[3]), r2 = (rr[0] + rr[1]) + (rr[2] + rr[3]);
  float y2 = (yy[0] + yy[1]) + (yy[2] + yy[3]);
  // No square is lost, neither below nor beyond the range of float32; NaN and Inf show here, too.
  const float low = 8.0779356694631609e-28f, high = 8.5070591730234616e37f;  // 2**-90, 2**126
  bool good = e2 <= high && r2 >= low && r2 <= high && y2 >= low && y2 <= high && (e2 >= low || s.away == 0.0f);
  if (!good) good = e2 == 0.0f && r2 == 0.0f && y2 == 0.0f && peak == 0 && s.away == 0.0f;  // zeros
  if (__any_sync(ALL, !good)) {
    all.note(UNUSUAL);
    return false;
  }
  const bool opposite = s.differ & F::SIGNS;
  s.steps = F::largest(s.steps);
  if (u32 lanes = __ballot_sync(ALL, opposite)) s.steps = farthest<F>(chunk, lanes, s.steps);
  if (__any_sync(ALL, s.away > 0.0f)) {
    const float unit = (float)(1 << (F::DIGITS - 1));
    s.of_got = larger_part<F>(of_got) * unit, s.of_want = larger_part<F>(of_want) * unit;
    if (!see_records<F>(t, chunk, budget, s, tile, largest, all)) {
      all.note(FAILING);
      return false;
    }
  }
  kept.ee += e2, kept.rr += r2, kept.yy += y2, kept.peak = F::peak(kept.peak, peak);
  const bool close = s.steps < NEAR && !opposite;
  if (close) {
#pragma unroll
    for (int w = 0; w < WORDS; w += 3 - F::PARTS) {
      u32 both = F::PARTS == 2 ? (x[w] * 32 + (x[w] >> 8)) & 0x7e0u : (x[w] + 8 * x[(w + 1) % WORDS]) * 32;
      atomicAdd(near_pairs + (both | lane), 1u);
    }
  }
  if (u32 lanes = __ballot_sync(ALL, !close)) {
    count_far<F>(chunk, lanes, far);
    all.note(LOOK_FAR);
  }
  return true;
}

// Likewise, apart from the registers of what comes first.
template <class F>
__device__ __noinline__ bool tally_apart(const Task& t, Chunk<F> chunk, Budget budget, u32 tile, Kept* kept,
                                         Largest* largest, u32* near_pairs, u32* far, const Shared* all) {
  Words words = load(chunk);
  return tally<F>(t, chunk, words, budget, tile, *kept, *largest, near_pairs, far, *all);
}

// Likewise, by a glance if that does.
template <class F>
__device__ __forceinline__ bool add(const Task& t, Chunk<F> chunk, Words& words, Budget budget, u32 tile, Kept& kept,
                                    Largest& largest, u32* near_pairs, u32* far, const Shared& all) {
  if constexpr (!F::PACKED) {
    return tally<F>(t, chunk, words, budget, tile, kept, largest, near_pairs, far, all);
  } else {
    if (all.turn >= kept.again) {
      const int how = glance<F>(t, chunk, words, tile, kept, far, all);
      if (how != UNCLEAR) return how == ADDED;
      const u32 trust = all.turn == kept.again ? min(2 * all.looked->trust + 1, MOST_SKIPPED) : 1;
      __syncwarp();
      if (threadIdx.x % 32 == 0) all.looked->trust = trust;
      __syncwarp();
      kept.again = all.turn + trust + 1;
    }
    Kept copy = kept;
    const Shared shared = all;
    bool added = tally_apart<F>(t, chunk, budget, tile, &copy, &largest, near_pairs, far, &shared);
    kept = copy;
    if (added && threadIdx.x % 32 == 0) all.looked->slow += 1;
    return added;
  }
}

// What the tables hold, and how many pairs there are and differ.
__device__ void add_tables(const u32* near_pairs, const u32* far, u32 tiles, u32 tile_size, u64* counts) {
  for (u32 d = threadIdx.x; d < 64 + FAR; d += BLOCK) {
    const u32* row = d < 64 ? near_pairs + d * 32 : far + (d - 64) * 32;
    u64 sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += row[(lane + d) % 32];
    if (!sum) continue;
    if (d < 64) {
      atomicAdd(counts + HISTOGRAM + bucket(d % 8), sum), atomicAdd(counts + HISTOGRAM + bucket(d / 8), sum);
      atomicAdd(counts + MISROUNDED, sum * ((d % 8 != 0) + (d / 8 != 0)));
    } else {
      atomicAdd(counts + HISTOGRAM + (d - 64), sum);
      if (d > 64) atomicAdd(counts + MISROUNDED, sum);
    }
  }
  if (threadIdx.x % 32 == 0) atomicAdd(counts + PAIRS, (u64)tiles * tile_size);
}

// Likewise what lanes counted at a glance, which were so many pairs.
__device__ void add_glanced(const Kept& kept, u32 pairs, u64* counts) {
  for (int b = 0; b < 5; ++b) {
    u32 sum = b < 4 ? __reduce_add_sync(ALL, kept.counts[b]) : pairs;
    if (b < 4) pairs -= sum;
    if (threadIdx.x % 32 || !sum) continue;
    atomicAdd(counts + HISTOGRAM + (b + 1) % 5, (u64)sum);
    if (b < 4) atomicAdd(counts + MISROUNDED, (u64)sum);
  }
}

template <class F>
__device__ void write_kept(const Task& t, const Kept& kept, const Largest& largest, const Looked& looked, u64* row) {
  const double shrink = 1.0 / ((double)F::GROW * F::GROW);
  float sizes[F::PARTS];
  F::split(kept.peak, sizes);
  Tally s = nothing();
  s.ee = kept.ee * shrink, s.rr = kept.rr, s.yy = kept.yy, s.peak = fmax(sizes[0], sizes[F::PARTS - 1]);
  s.ulps = fmax(looked.ulps, (double)largest.ulps);
  s.abs.see(largest.away.value, tile_begin(t, largest.away.tile));
  s.abs.see(looked.abs.value, tile_begin(t, looked.abs.tile));
  s.rel.see(looked.rel.value, tile_begin(t, looked.rel.tile));
  s.rho.see(looked.rho.value, tile_begin(t, looked.rho.tile));
  s.steps.see(largest.steps.value, tile_begin(t, largest.steps.tile));
  s.steps.see(looked.steps.value, tile_begin(t, looked.steps.tile));
  write_row(s, row);
}

template <class F>
__device__ __forceinline__ void peers(const Task* task, const char* got, const char* want, u64* rows, u64* counts,
                                      u8* left, u32 first, u32 last) {
  __shared__ u32 near_pairs[64 * 32], far[FAR * 32];
  __shared__ Floors floors;
  __shared__ Looked looked[WARPS];
  __shared__ u32 notes[NOTES];
  const Task& t = *task;
  Shared all = {&floors, looked + threadIdx.x / 32, notes, 0};
  for (u32 i = threadIdx.x; i < 64 * 32; i += BLOCK) near_pairs[i] = 0;
  for (u32 i = threadIdx.x; i < FAR * 32; i += BLOCK) far[i] = 0;
  if (threadIdx.x < WARPS) looked[threadIdx.x] = {};
  if (threadIdx.x < NOTES) notes[threadIdx.x] = 0;
  u32* known = (u32*)t.floors;  // of a Reached, which begins with them
  u32* ours = &floors.rel;
  if (threadIdx.x < 2) ours[threadIdx.x] = *(volatile u32*)(known + threadIdx.x);
  __syncthreads();
  const Budget budget = {(float)t.error, (float)t.slope};
  Kept kept = {};
  Largest largest = {};
  if constexpr (F::PACKED) all.turn = 1, hear<F>(t, all), all.turn = 0;
  if (threadIdx.x == 0 && blockIdx.x == 0 && tile_begin(t, last) < t.size) left[last] = true;  // is less than a tile
  for (u32 tile = first + blockIdx.x * WARPS + threadIdx.x / 32; tile < last; tile += gridDim.x * WARPS) {
    all.turn += 1;
    if (!F::PACKED && all.turn % EXCHANGE == 0 && threadIdx.x % 32 < 2) {
      u32 lane = threadIdx.x % 32, mine = *(volatile u32*)(ours + lane), theirs = *(volatile u32*)(known + lane);
      if (mine > theirs) atomicMax(known + lane, mine);
      if (theirs > mine) atomicMax(ours + lane, theirs);
    }
    const Chunk<F> chunk = chunk_of<F>(got, want, tile);
    Words words = load(chunk);
    bool added = add<F>(t, chunk, words, budget, tile, kept, largest, near_pairs, far, all);
    if (!added && threadIdx.x % 32 == 0) left[tile] = true, all.looked->missed += 1;
  }
  __syncthreads();
  const u32 size = WORDS * F::PARTS, tiles = all.turn - all.looked->missed;
  add_tables(near_pairs, far, tiles, 32 * size, counts);
  if (F::PACKED) add_glanced(kept, (32 * (tiles - all.looked->slow) - all.looked->far) * size, counts);
  if (threadIdx.x < NOTES && notes[threadIdx.x]) atomicAdd(counts + NOTED + threadIdx.x, (u64)notes[threadIdx.x]);
  write_kept<F>(t, kept, largest, *all.looked, rows + (u64)ROW * blockIdx.x);
}

// Tiles from first to last, all whole; got, want: of tile 1; left: whether walk must see a tile, or what follows them.
#define PEERS(NAME, FORMAT)                                                                                        \
  extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)                                                    \
      NAME(const Task* __restrict__ task, const char* got, const char* want, u64* rows, u64* counts, u8* left,      \
           int first, int last) {                                                                                  \
    peers<FORMAT>(task, got, want, rows, counts, left, first, last);                                               \
  }
PEERS(peers_float32, Single)
PEERS(peers_float16, Half)
PEERS(peers_bfloat16, Brain)
