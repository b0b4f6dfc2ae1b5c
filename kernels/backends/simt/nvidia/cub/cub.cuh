// Of CUB what kernels use most: reductions, scans and sorts of a block and a warp, loads and stores of a block, and of whole
// arrays what the host launches. Temporary memory is used as CUB does it, so that check mode sees where it is used again
// without a barrier.
#pragma once
#include <cuda_bf16.h>

namespace cub {
struct NullType {};
#define SIMT_FUNCTOR(NAME, EXPRESSION) \
  struct NAME {                        \
    template <class T>                 \
    T operator()(const T& a, const T& b) const { return EXPRESSION; } \
  };
SIMT_FUNCTOR(Sum, a + b)
SIMT_FUNCTOR(Max, b > a ? b : a)
SIMT_FUNCTOR(Min, b < a ? b : a)
template <class K, class V>
struct KeyValuePair {
  using Key = K;
  using Value = V;
  K key;
  V value;
};
SIMT_FUNCTOR(ArgMax, (b.value > a.value || (a.value == b.value && b.key < a.key)) ? b : a)
SIMT_FUNCTOR(ArgMin, (b.value < a.value || (a.value == b.value && b.key < a.key)) ? b : a)
#undef SIMT_FUNCTOR

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
};

namespace detail {
inline unsigned rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
// Lanes of a part of the warp that the block has.
inline unsigned mask_of(unsigned width) {
  unsigned warp = rank() / 32 * 32, there = blockDim.x * blockDim.y * blockDim.z - warp;
  unsigned lanes = width >= 32 ? ~0u : ((1u << width) - 1) << rank() % 32 / width * width;
  return there >= 32 ? lanes : lanes & ((1u << there) - 1);
}
// Of any type, word by word; who asks for a lane that there is not keeps its own.
template <class T>
SIMT_INLINE T from_lane(unsigned mask, const T& value, unsigned lane) {
  unsigned words[(sizeof(T) + 3) / 4] = {}, from = lane < 32 && mask >> lane & 1 ? lane : rank() % 32;
  simt::copy_unseen<T>(words, &value);
  for (unsigned& w : words) w = __shfl_sync(mask, w, from, 32);
  T found = value;
  simt::copy_unseen<T>(&found, words);
  return found;
}
template <class T, class F>
SIMT_INLINE T reduced(T v, F f, unsigned valid, unsigned width) {
  unsigned mask = mask_of(width), lane = rank() % width;
  for (unsigned by = 1; by < width; by *= 2) {
    T above = from_lane(mask, v, rank() % 32 + by);
    if (lane % (2 * by) == 0 && lane + by < valid && mask >> (rank() % 32 + by) & 1) v = f(v, above);
  }
  return v;
}
// What only the first thread has; the others get what nobody should use.
template <class T>
SIMT_INLINE T of_first(bool is_first, T v, const char* of, simt::Place at) {
  if constexpr (std::is_trivially_copyable_v<T>)
    if (!is_first) simt::make_undefined(&v, sizeof v, of, at);
  return v;
}
template <class T>
struct Scanned {
  T inclusive, below;  // below: of those before it, of which the first has none
};
template <class T, class F>
SIMT_INLINE Scanned<T> scanned(T v, F f, unsigned width) {
  unsigned mask = mask_of(width), lane = rank() % width;
  for (unsigned by = 1; by < width; by *= 2) {
    T before = from_lane(mask, v, rank() % 32 - by);
    if (lane >= by) v = f(before, v);
  }
  return {v, from_lane(mask, v, rank() % 32 - 1)};
}
template <class T, int N>
struct Storage {
  alignas(T) char held[N * sizeof(T)];
  SIMT_INLINE T& at(unsigned n) { return reinterpret_cast<T*>(held)[n]; }
};
// Memory that Owner is given, or has of its own.
template <class Parts, class Owner>
class Kept {
 protected:
  Parts& parts;

 public:
  static SIMT_INLINE Parts& own() {
    __shared__ Parts kept;
    return kept;
  }
  using TempStorage = Parts;
  SIMT_INLINE Kept() : parts(own()) {}
  SIMT_INLINE explicit Kept(TempStorage& parts) : parts(parts) {}
};
template <class T, int Threads>
using OfWarps = Storage<T, (Threads + 31) / 32>;  // a value of each
}  // namespace detail

template <class T, int Width = 32, int = 0>
struct WarpReduce {
  struct TempStorage {};
  SIMT_INLINE explicit WarpReduce(TempStorage&) {}
  template <class F>
  SIMT_INLINE T Reduce(T v, F f, int valid = Width, simt::Place at = simt::here()) {
    return detail::of_first(detail::rank() % Width == 0, detail::reduced(v, f, valid, Width), "cub::WarpReduce", at);
  }
  SIMT_INLINE T Sum(T v, int valid = Width, simt::Place at = simt::here()) { return Reduce(v, cub::Sum(), valid, at); }
};

template <class T, int X, BlockReduceAlgorithm How = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int Arch = 0>
class BlockReduce : detail::Kept<detail::OfWarps<T, X * Y * Z>, BlockReduce<T, X, How, Y, Z, Arch>> {
  static constexpr int threads = X * Y * Z;
  using Base = detail::Kept<detail::OfWarps<T, threads>, BlockReduce>;
  using Base::parts;

 public:
  using typename Base::TempStorage;
  using Base::Base;
  template <class F>
  SIMT_INLINE T Reduce(T v, F f, int valid = threads, simt::Place at = simt::here()) {
    int me = detail::rank(), begin = me / 32 * 32;
    v = detail::reduced(v, f, valid > begin ? valid - begin : 0, 32);
    if (me % 32 == 0) parts.at(me / 32) = v;
    __syncthreads();
    for (int w = 1; me == 0 && w * 32 < valid; ++w) v = f(v, parts.at(w));
    return detail::of_first(me == 0, v, "cub::BlockReduce", at);
  }
  template <int N, class F>
  SIMT_INLINE T Reduce(T (&items)[N], F f, simt::Place at = simt::here()) {
    T v = items[0];
    for (int n = 1; n < N; ++n) v = f(v, items[n]);
    return Reduce(v, f, threads, at);
  }
  SIMT_INLINE T Sum(T v, int valid = threads, simt::Place at = simt::here()) { return Reduce(v, cub::Sum(), valid, at); }
  template <int N>
  SIMT_INLINE T Sum(T (&items)[N], simt::Place at = simt::here()) { return Reduce(items, cub::Sum(), at); }
};

// What scans of a warp and of a block have in common: Self::over scans one value of each thread.
namespace detail {
template <class T, class Self>
struct Scans {
  template <class I, class O, class... Total>
  SIMT_INLINE void InclusiveSum(const I& in, O& out, Total&... total) { scan(in, out, cub::Sum(), nullptr, true, total...); }
  template <class I, class O, class... Total>
  SIMT_INLINE void ExclusiveSum(const I& in, O& out, Total&... total) {
    const T zero{};
    scan(in, out, cub::Sum(), &zero, false, total...);
  }
  template <class I, class O, class F, class... Total>
  SIMT_INLINE void InclusiveScan(const I& in, O& out, F f, Total&... total) { scan(in, out, f, nullptr, true, total...); }
  template <class I, class O, class F, class... Total>
  SIMT_INLINE void ExclusiveScan(const I& in, O& out, T init, F f, Total&... total) { scan(in, out, f, &init, false, total...); }

 private:
  template <class I, class O, class F, class... Total>
  SIMT_INLINE void scan(const I& in, O& out, F f, const T* init, bool inclusive, Total&... total) {
    constexpr int n = std::is_array_v<I> ? std::extent_v<I> : 1;
    T items[n], all;
    for (int i = 0; i < n; ++i)
      if constexpr (std::is_array_v<I>) items[i] = in[i];
      else items[i] = in;
    T mine = items[0];
    for (int i = 1; i < n; ++i) mine = f(mine, items[i]);
    auto& self = *static_cast<Self*>(this);
    bool none = self.is_first();
    T before = self.over(mine, f, all).below;
    if (init) before = none ? *init : f(*init, before), none = false;
    T* to = reinterpret_cast<T*>(&out);
    for (int i = 0; i < n; ++i, none = false) {
      T through = none ? items[i] : f(before, items[i]);
      to[i] = inclusive ? through : none ? T{} : before;
      before = through;
    }
    ((total = all), ...);
  }
};
}  // namespace detail

template <class T, int Width = 32>
struct WarpScan : detail::Scans<T, WarpScan<T, Width>> {
  struct TempStorage {};
  SIMT_INLINE explicit WarpScan(TempStorage&) {}
  SIMT_INLINE bool is_first() const { return detail::rank() % Width == 0; }
  template <class F>
  SIMT_INLINE detail::Scanned<T> over(T v, F f, T& all) {
    auto found = detail::scanned(v, f, Width);
    unsigned mask = detail::mask_of(Width);
    all = detail::from_lane(mask, found.inclusive, 31 - __clz(mask));
    return found;
  }
};

template <class T, int X, BlockScanAlgorithm How = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
class BlockScan : public detail::Scans<T, BlockScan<T, X, How, Y, Z>>,
                  detail::Kept<detail::OfWarps<T, X * Y * Z>, BlockScan<T, X, How, Y, Z>> {
  static constexpr int warps = (X * Y * Z + 31) / 32;
  using Base = detail::Kept<detail::OfWarps<T, X * Y * Z>, BlockScan>;
  using Base::parts;

 public:
  using typename Base::TempStorage;
  using Base::Base;
  SIMT_INLINE bool is_first() const { return detail::rank() == 0; }
  template <class F>
  SIMT_INLINE detail::Scanned<T> over(T v, F f, T& all) {
    auto found = detail::scanned(v, f, 32);
    int me = detail::rank(), warp = me / 32;
    if (me % 32 == 31 || me == X * Y * Z - 1) parts.at(warp) = found.inclusive;
    __syncthreads();
    T before = all = parts.at(0);
    for (int w = 1; w < warps; ++w) {
      if (w == warp) before = all;
      all = f(all, parts.at(w));
    }
    if (warp) found = {f(before, found.inclusive), me % 32 ? f(before, found.below) : before};
    return found;
  }
};

// What loads and stores of a block have in common. Those that transpose go through temporary memory, in stripes of a warp or
// of the block, so that a thread's items lie where another accesses the array.
namespace detail {
template <bool Transposes, class T, int Items>
using Turned = std::conditional_t<Transposes, Storage<T, Items>, NullType>;
template <class T, int Threads, int N, int How, class Owner>
class Moves : Kept<Turned<How >= BLOCK_LOAD_TRANSPOSE, T, Threads * N>, Owner> {
  using Base = Kept<Turned<How >= BLOCK_LOAD_TRANSPOSE, T, Threads * N>, Owner>;
  static constexpr bool by_warp = How == BLOCK_LOAD_WARP_TRANSPOSE;
  static SIMT_INLINE int first() { return by_warp ? rank() / 32 * 32 : 0; }
  static SIMT_INLINE int together() { return by_warp ? std::min(Threads - first(), 32) : Threads; }

 public:
  using typename Base::TempStorage;
  using Base::Base;

 protected:
  using Base::parts;
  static constexpr bool transposes = How >= BLOCK_LOAD_TRANSPOSE;
  static SIMT_INLINE int stripe(int n) { return first() * N + n * together() + rank() - first(); }
  static SIMT_INLINE int own(int n) { return rank() * N + n; }
  static SIMT_INLINE int place(int n) { return How == BLOCK_LOAD_STRIPED ? rank() + n * Threads : own(n); }
  // Where a load has it: a store that comes before all have read theirs writes what is another thread's.
  static SIMT_INLINE int turned(int at) { return first() * N + (at - first() * N + N) % (together() * N); }
  static SIMT_INLINE void meet() {
    if (by_warp) __syncwarp(mask_of(32));
    else __syncthreads();
  }
};
}  // namespace detail
template <class T, int X, int N, BlockLoadAlgorithm How = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int Arch = 0>
class BlockLoad : detail::Moves<T, X * Y * Z, N, How, BlockLoad<T, X, N, How, Y, Z, Arch>> {
  using Base = detail::Moves<T, X * Y * Z, N, How, BlockLoad>;

 public:
  using typename Base::TempStorage;
  using Base::Base;
  template <class I>
  SIMT_INLINE void Load(I from, T (&items)[N], int valid = X * Y * Z * N) {
    if constexpr (Base::transposes) {
      for (int n = 0; n < N; ++n)
        if (int at = Base::stripe(n); at < valid) this->parts.at(Base::turned(at)) = from[at];
      Base::meet();
      for (int n = 0; n < N; ++n)
        if (int at = Base::own(n); at < valid) items[n] = this->parts.at(Base::turned(at));
    } else {
      for (int n = 0; n < N; ++n)
        if (int at = Base::place(n); at < valid) items[n] = from[at];
    }
  }
  template <class I, class D>
  SIMT_INLINE void Load(I from, T (&items)[N], int valid, D otherwise) {
    for (T& item : items) item = otherwise;
    Load(from, items, valid);
  }
};
template <class T, int X, int N, BlockStoreAlgorithm How = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int Arch = 0>
class BlockStore : detail::Moves<T, X * Y * Z, N, How, BlockStore<T, X, N, How, Y, Z, Arch>> {
  using Base = detail::Moves<T, X * Y * Z, N, How, BlockStore>;

 public:
  using typename Base::TempStorage;
  using Base::Base;
  template <class O>
  SIMT_INLINE void Store(O to, const T (&items)[N], int valid = X * Y * Z * N) {
    if constexpr (Base::transposes) {
      for (int n = 0; n < N; ++n) this->parts.at(Base::own(n)) = items[n];
      Base::meet();
      for (int n = 0; n < N; ++n)
        if (int at = Base::stripe(n); at < valid) to[at] = this->parts.at(at);
    } else {
      for (int n = 0; n < N; ++n)
        if (int at = Base::place(n); at < valid) to[at] = items[n];
    }
  }
};
}  // namespace cub

#include "sorts.cuh"
#ifdef __CUDACC__
#include "device.cuh"
#endif
