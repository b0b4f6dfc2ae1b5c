// Sorts of a block and of a warp: each thread sorts its own items, then runs of twice as many are merged, in temporary memory.
#pragma once

namespace cub {
namespace detail {
template <class K, class V, int Count>
struct Sorting {
  Storage<K, Count> keys;
  Storage<V, Count> values;
};
template <int Threads>
struct OfBlock {
  static constexpr int threads = Threads;
  static SIMT_INLINE unsigned rank() { return detail::rank(); }
  static SIMT_INLINE void meet() { __syncthreads(); }
};
template <int Threads>
struct OfWarp {
  static constexpr int threads = Threads;
  static SIMT_INLINE unsigned rank() { return detail::rank() % Threads; }
  static SIMT_INLINE void meet() { __syncwarp(mask_of(Threads)); }
};

// How many of a sorted run come before a key; with those that are equal, where it stands behind them.
template <class K, class F>
SIMT_INLINE int before(const K& key, K* run, int length, bool behind, F less) {
  int found = 0;
  while (length > 0) {
    int half = length / 2;
    const K& other = run[found + half];
    bool comes_first = behind ? !less(key, other) : less(other, key);
    found += comes_first ? half + 1 : 0;
    length = comes_first ? length - half - 1 : half;
  }
  return found;
}
template <bool has_values, class Parts, class K, class V, int N>
SIMT_INLINE void exchange(Parts& parts, K (&keys)[N], V* values, int (&at)[N], bool writes) {
  for (int n = 0; n < N; ++n) {
    if (writes) parts.keys.at(at[n]) = keys[n];
    else keys[n] = parts.keys.at(at[n]);
    if constexpr (has_values)
      if (writes) parts.values.at(at[n]) = values[n];
      else values[n] = parts.values.at(at[n]);
  }
}
template <class Group, class Parts, class K, class V, int N, class F>
SIMT_INLINE void sort(Parts& parts, K (&keys)[N], V* values, F less, bool striped = false) {
  constexpr bool has_values = !std::is_same_v<V, NullType>;
  constexpr int count = N * Group::threads;
  int me = Group::rank(), own[N], place[N];
  for (int i = 1; i < N; ++i)
    for (int k = i; k > 0 && less(keys[k], keys[k - 1]); --k) {
      std::swap(keys[k], keys[k - 1]);
      if constexpr (has_values) std::swap(values[k], values[k - 1]);
    }
  for (int n = 0; n < N; ++n) own[n] = me * N + n;
  exchange<has_values>(parts, keys, values, own, true);
  for (int run = N; run < count; run *= 2) {
    Group::meet();
    for (int n = 0; n < N; ++n) {
      int number = own[n] / run, mine = number * run, others = (number ^ 1) * run, length = others < count ? std::min(run, count - others) : 0;
      int rank = length ? before(keys[n], &parts.keys.at(others), length, others < mine, less) : 0;
      place[n] = std::min(mine, others) + own[n] - mine + rank;
    }
    Group::meet();
    // At last where another thread's items were: who writes there again before all have read theirs is too early.
    int by = run * 2 >= count ? N : 0;
    for (int n = 0; n < N; ++n) place[n] = (place[n] + by) % count, own[n] = ((by && striped ? me + n * Group::threads : own[n]) + by) % count;
    exchange<has_values>(parts, keys, values, place, true);
    Group::meet();
    exchange<has_values>(parts, keys, values, own, false);
  }
}

// Bits that are in the order of keys.
template <class K>
SIMT_INLINE uint64_t digits(const K& key, int begin, int end) {
  static_assert(sizeof(K) <= 8, "keys of a radix sort have up to 8 bytes");
  uint64_t raw = 0, sign = uint64_t{1} << (8 * sizeof(K) - 1);
  simt::copy_unseen<K>(&raw, &key);
  if constexpr (!std::is_integral_v<K>) raw = raw == sign ? sign : raw & sign ? ~raw & (sign | (sign - 1)) : raw | sign;
  else if (std::is_signed_v<K>) raw ^= sign;
  return raw >> begin & (end - begin < 64 ? (uint64_t{1} << (end - begin)) - 1 : ~uint64_t{0});
}
template <class K>
struct Digits {
  int begin, end;
  bool descends;
  SIMT_INLINE bool operator()(const K& a, const K& b) const {
    return descends ? digits(b, begin, end) < digits(a, begin, end) : digits(a, begin, end) < digits(b, begin, end);
  }
};

template <class K, int N, class V, class Group>
struct MergeSorts {
  using TempStorage = Sorting<K, V, N * Group::threads>;
  TempStorage& parts;
  SIMT_INLINE explicit MergeSorts(TempStorage& parts) : parts(parts) {}
  template <class F>
  SIMT_INLINE void Sort(K (&keys)[N], F less) { sort<Group>(parts, keys, static_cast<NullType*>(nullptr), less); }
  template <class F>
  SIMT_INLINE void Sort(K (&keys)[N], V (&values)[N], F less) { sort<Group>(parts, keys, values, less); }
  template <class F>
  SIMT_INLINE void Sort(K (&keys)[N], F less, int valid, K otherwise) { Sort(bounded(keys, valid, otherwise), less); }
  template <class F>
  SIMT_INLINE void Sort(K (&keys)[N], V (&values)[N], F less, int valid, K otherwise) {
    Sort(bounded(keys, valid, otherwise), values, less);
  }
  template <class... A>
  SIMT_INLINE void StableSort(A&&... all) { Sort(std::forward<A>(all)...); }

 private:
  SIMT_INLINE auto bounded(K (&keys)[N], int valid, const K& otherwise) -> K (&)[N] {
    for (int n = 0; n < N; ++n)
      if (static_cast<int>(Group::rank()) * N + n >= valid) keys[n] = otherwise;
    return keys;
  }
};
}  // namespace detail

template <class K, int X, int N, class V = NullType, int Y = 1, int Z = 1>
struct BlockMergeSort : detail::MergeSorts<K, N, V, detail::OfBlock<X * Y * Z>> {
  using Base = detail::MergeSorts<K, N, V, detail::OfBlock<X * Y * Z>>;
  using Base::Base;
  using Owner = detail::Kept<typename Base::TempStorage, BlockMergeSort>;
  SIMT_INLINE BlockMergeSort() : Base(Owner::own()) {}
};
template <class K, int N, int Width = 32, class V = NullType, int = 0>
struct WarpMergeSort : detail::MergeSorts<K, N, V, detail::OfWarp<Width>> {
  using detail::MergeSorts<K, N, V, detail::OfWarp<Width>>::MergeSorts;
};

#define SIMT_RADIX_SORT(NAME, DESCENDS, STRIPED)                                                                        \
  SIMT_INLINE void NAME(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) {                                         \
    detail::sort<Group>(parts, keys, static_cast<NullType*>(nullptr), detail::Digits<K>{begin, end, DESCENDS}, STRIPED); \
  }                                                                                                                     \
  SIMT_INLINE void NAME(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) {                         \
    detail::sort<Group>(parts, keys, values, detail::Digits<K>{begin, end, DESCENDS}, STRIPED);                         \
  }
template <class K, int X, int N, class V = NullType, int Bits = 4, bool Memoize = true,
          BlockScanAlgorithm How = BLOCK_SCAN_WARP_SCANS, cudaSharedMemConfig Banks = cudaSharedMemBankSizeFourByte, int Y = 1, int Z = 1>
class BlockRadixSort
    : detail::Kept<detail::Sorting<K, V, N * X * Y * Z>, BlockRadixSort<K, X, N, V, Bits, Memoize, How, Banks, Y, Z>> {
  using Base = detail::Kept<detail::Sorting<K, V, N * X * Y * Z>, BlockRadixSort>;
  using Base::parts;
  using Group = detail::OfBlock<X * Y * Z>;

 public:
  using typename Base::TempStorage;
  using Base::Base;
  SIMT_RADIX_SORT(Sort, false, false)
  SIMT_RADIX_SORT(SortDescending, true, false)
  SIMT_RADIX_SORT(SortBlockedToStriped, false, true)
  SIMT_RADIX_SORT(SortDescendingBlockedToStriped, true, true)
};
#undef SIMT_RADIX_SORT
}  // namespace cub
