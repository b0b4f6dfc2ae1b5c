// What the host launches of CUB, for whole arrays. Called without temporary memory it says how much it wants; with it one
// thread of a kernel does the work, in the stream and by the name of the function, judged as other kernels are.
#pragma once
#include <iterator>

namespace cub {
template <class T>
struct DoubleBuffer {
  T* d_buffers[2] = {};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* other) : d_buffers{current, other} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace detail {
template <class I>
using ValueOf = typename std::iterator_traits<I>::value_type;
template <class O, class I>
using Sums = std::conditional_t<std::is_void_v<ValueOf<O>>, ValueOf<I>, ValueOf<O>>;

struct Given {
  const char* name;
  void* temporary;
  size_t& bytes;
  cudaStream_t stream;
  simt::Place at;
  template <class F>
  cudaError_t run(size_t wanted, F work) const {
    if (!temporary) return bytes = wanted, cudaSuccess;
    if (bytes < wanted) return cudaErrorInvalidValue;
    auto* memory = static_cast<char*>(temporary);
    auto kernel = [=] {
      F mine = work;
      *memory = 0, mine();
    };
    simt::Launching launching(name, at, {1, 1, 0, stream});
    return simt_kernel(kernel), simt::run_launch();
  }
};

template <class I, class O, class T, class F>
cudaError_t reduce(const Given& given, I in, O out, size_t n, F f, T init) {
  return given.run(1, [=] {
    T sum = init;
    for (size_t i = 0; i < n; ++i) sum = f(sum, in[i]);
    *out = sum;
  });
}
template <bool inclusive, class I, class O, class T, class F>
cudaError_t scan(const Given& given, I in, O out, size_t n, F f, T sum, bool has_first = true) {
  return given.run(1, [=]() mutable {
    for (size_t i = 0; i < n; ++i) {
      T item = in[i], next = i || has_first ? f(sum, item) : item;
      out[i] = inclusive ? next : sum;
      sum = next;
    }
  });
}
// wanted(i): whether item i is copied.
template <class I, class O, class N, class F>
cudaError_t select(const Given& given, I in, O out, N count, size_t n, F wanted) {
  return given.run(1, [=]() mutable {
    size_t to = 0;
    for (size_t i = 0; i < n; ++i)
      if (wanted(i)) out[to++] = in[i];
    *count = static_cast<ValueOf<N>>(to);
  });
}
// Runs of one item, of two, and so on, are merged from one place to the other and back.
template <class K, class V, class F>
cudaError_t sort(const Given& given, const K* in, K* out, const V* values, V* sorted, size_t n, F less) {
  constexpr bool has_values = !std::is_same_v<V, NullType>;
  auto* more_values = static_cast<V*>(given.temporary);
  auto* more = reinterpret_cast<K*>(more_values + (has_values ? (n * sizeof(V) + 15) / 16 * 16 / sizeof(V) : 0));
  return given.run(n * (sizeof(K) + (has_values ? sizeof(V) : 0)) + 32, [=]() mutable {
    auto take = [&](size_t to, size_t from, const K* keys, const V* theirs) {
      out[to] = keys[from];
      if constexpr (has_values) sorted[to] = theirs[from];
    };
    for (size_t i = 0; i < n; ++i) take(i, i, in, values);
    K* const given_out = out;
    for (size_t run = 1; run < n || out != given_out; run *= 2) {
      std::swap(out, more), std::swap(sorted, more_values);
      for (size_t begin = 0; begin < n; begin += 2 * run) {
        size_t left = begin, middle = std::min(begin + run, n), right = middle, end = std::min(begin + 2 * run, n);
        for (size_t at = begin; at < end; ++at) {
          bool is_left = right == end || (left < middle && !less(more[right], more[left]));
          take(at, is_left ? left++ : right++, more, more_values);
        }
      }
    }
  });
}
}  // namespace detail

#define SIMT_GIVEN(NAME) (detail::Given{"cub::" NAME, temporary, bytes, stream, at})
#define SIMT_LAST cudaStream_t stream = nullptr, bool = false, simt::Place at = simt::here()
#define SIMT_REDUCE(NAME, F, FIRST)                                                                            \
  template <class I, class O, class N>                                                                         \
  static cudaError_t NAME(void* temporary, size_t& bytes, I in, O out, N n, SIMT_LAST) {                       \
    using T = detail::Sums<O, I>;                                                                              \
    return detail::reduce(SIMT_GIVEN("DeviceReduce::" #NAME), in, out, n, F(), static_cast<T>(FIRST));         \
  }
struct DeviceReduce {
  SIMT_REDUCE(Sum, cub::Sum, T{})
  SIMT_REDUCE(Min, cub::Min, std::numeric_limits<T>::max())
  SIMT_REDUCE(Max, cub::Max, std::numeric_limits<T>::lowest())
  template <class I, class O, class N, class F, class T>
  static cudaError_t Reduce(void* temporary, size_t& bytes, I in, O out, N n, F f, T init, SIMT_LAST) {
    return detail::reduce(SIMT_GIVEN("DeviceReduce::Reduce"), in, out, n, f, init);
  }
};
#undef SIMT_REDUCE

struct DeviceScan {
  template <class I, class O, class N>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, I in, O out, N n, SIMT_LAST) {
    return detail::scan<false>(SIMT_GIVEN("DeviceScan::ExclusiveSum"), in, out, n, cub::Sum(), detail::ValueOf<I>{});
  }
  template <class I, class O, class N>
  static cudaError_t InclusiveSum(void* temporary, size_t& bytes, I in, O out, N n, SIMT_LAST) {
    return detail::scan<true>(SIMT_GIVEN("DeviceScan::InclusiveSum"), in, out, n, cub::Sum(), detail::ValueOf<I>{});
  }
  template <class I, class O, class F, class T, class N>
  static cudaError_t ExclusiveScan(void* temporary, size_t& bytes, I in, O out, F f, T init, N n, SIMT_LAST) {
    return detail::scan<false>(SIMT_GIVEN("DeviceScan::ExclusiveScan"), in, out, n, f, init);
  }
  template <class I, class O, class F, class N>
  static cudaError_t InclusiveScan(void* temporary, size_t& bytes, I in, O out, F f, N n, SIMT_LAST) {
    return detail::scan<true>(SIMT_GIVEN("DeviceScan::InclusiveScan"), in, out, n, f, detail::ValueOf<I>{}, false);
  }
};

struct DeviceSelect {
  template <class I, class W, class O, class C, class N>
  static cudaError_t Flagged(void* temporary, size_t& bytes, I in, W flags, O out, C count, N n, SIMT_LAST) {
    return detail::select(SIMT_GIVEN("DeviceSelect::Flagged"), in, out, count, n, [=](size_t i) -> bool { return flags[i]; });
  }
  template <class I, class O, class C, class N, class F>
  static cudaError_t If(void* temporary, size_t& bytes, I in, O out, C count, N n, F f, SIMT_LAST) {
    return detail::select(SIMT_GIVEN("DeviceSelect::If"), in, out, count, n, [=](size_t i) -> bool { return f(in[i]); });
  }
  template <class I, class O, class C, class N>
  static cudaError_t Unique(void* temporary, size_t& bytes, I in, O out, C count, N n, SIMT_LAST) {
    return detail::select(SIMT_GIVEN("DeviceSelect::Unique"), in, out, count, n, [=](size_t i) { return !i || !(in[i] == in[i - 1]); });
  }
};

#define SIMT_BITS int begin = 0, int end = sizeof(K) * 8, SIMT_LAST
#define SIMT_SORT(KEYS, PAIRS, DESCENDS)                                                                                    \
  template <class K, class N>                                                                                               \
  static cudaError_t KEYS(void* temporary, size_t& bytes, const K* in, K* out, N n, SIMT_BITS) {                            \
    detail::Digits<K> less{begin, end, DESCENDS};                                                                           \
    NullType* none = nullptr;                                                                                               \
    return detail::sort(SIMT_GIVEN("DeviceRadixSort::" #KEYS), in, out, none, none, n, less);                               \
  }                                                                                                                         \
  template <class K, class V, class N>                                                                                      \
  static cudaError_t PAIRS(void* temporary, size_t& bytes, const K* in, K* out, const V* values, V* sorted, N n, SIMT_BITS) { \
    detail::Digits<K> less{begin, end, DESCENDS};                                                                           \
    return detail::sort(SIMT_GIVEN("DeviceRadixSort::" #PAIRS), in, out, values, sorted, n, less);                          \
  }                                                                                                                         \
  template <class K, class N>                                                                                               \
  static cudaError_t KEYS(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, N n, SIMT_BITS) {                          \
    cudaError_t error = KEYS(temporary, bytes, keys.Current(), keys.Alternate(), n, begin, end, stream, false, at);         \
    return keys.selector ^= !!temporary, error;                                                                             \
  }                                                                                                                         \
  template <class K, class V, class N>                                                                                      \
  static cudaError_t PAIRS(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, N n, SIMT_BITS) {  \
    cudaError_t error = PAIRS(temporary, bytes, keys.Current(), keys.Alternate(), values.Current(), values.Alternate(), n,  \
                              begin, end, stream, false, at);                                                               \
    return keys.selector ^= !!temporary, values.selector ^= !!temporary, error;                                             \
  }
struct DeviceRadixSort {
  SIMT_SORT(SortKeys, SortPairs, false)
  SIMT_SORT(SortKeysDescending, SortPairsDescending, true)
};
#undef SIMT_SORT
#undef SIMT_BITS
#undef SIMT_LAST
#undef SIMT_GIVEN
}  // namespace cub
