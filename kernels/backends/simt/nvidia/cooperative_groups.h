// Groups of threads: the grid, the block, tiles of a warp, and the lanes that are active together. tiled_partition, coalesced_threads and the reductions are those of cooperative_groups.
#pragma once

namespace cooperative_groups {
namespace detail {
inline unsigned rank_in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned lane() { return rank_in_block() % 32; }
inline unsigned low_bits(unsigned n) { return n >= 32 ? ~0u : (1u << n) - 1; }
// The n-th lane of a mask.
inline int nth(unsigned mask, unsigned n) {
  for (; n; --n) mask &= mask - 1;
  return __builtin_ctz(mask);
}
}  // namespace detail

struct thread_block {
  static void sync(simt::Place at = simt::here()) { simt::barrier(simt::Vote::none, 0, at); }
  struct arrival_token {};
  static arrival_token barrier_arrive() { return {}; }  // NVIDIA's does no more
  static void barrier_wait(arrival_token&&, simt::Place at = simt::here()) { sync(at); }
  static unsigned thread_rank() { return detail::rank_in_block(); }
  static unsigned size() { return detail::block_size(); }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

struct grid_group {
  static unsigned long long thread_rank() { return block_rank() * detail::block_size() + detail::rank_in_block(); }
  static unsigned long long block_rank() {
    return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
  }
  static unsigned long long num_blocks() { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
  static unsigned long long size() { return num_blocks() * detail::block_size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 group_dim() { return gridDim; }
  static bool is_valid() { return simt::may_meet(); }
  static void sync(simt::Place at = simt::here()) { simt::grid_barrier(at); }
  using arrival_token = uint64_t;
  static arrival_token barrier_arrive(simt::Place at = simt::here()) { return simt::grid_arrive(at); }
  static void barrier_wait(arrival_token&& phase, simt::Place at = simt::here()) { simt::grid_wait(phase, at); }
};
inline grid_group this_grid() { return {}; }

// Lanes of one warp, by a mask; what tiles and coalesced groups have in common. A lane's rank counts those below it.
struct lanes_of_warp {
  unsigned mask = 0;

  void sync(simt::Place at = simt::here()) const { simt::warp(simt::Op::sync, mask, 0, 0, 32, at); }
  unsigned thread_rank() const { return __builtin_popcount(mask & detail::low_bits(detail::lane())); }
  unsigned size() const { return __builtin_popcount(mask); }
  unsigned num_threads() const { return size(); }

  template <class T>
  T shfl(T value, unsigned rank, simt::Place at = simt::here()) const {
    return __shfl_sync(mask, value, detail::nth(mask, rank % size()), 32, at);
  }
  template <class T>
  T shfl_down(T value, unsigned by, simt::Place at = simt::here()) const {
    unsigned to = thread_rank() + by;
    return __shfl_sync(mask, value, detail::nth(mask, to < size() ? to : thread_rank()), 32, at);
  }
  template <class T>
  T shfl_up(T value, unsigned by, simt::Place at = simt::here()) const {
    unsigned me = thread_rank();
    return __shfl_sync(mask, value, detail::nth(mask, me >= by ? me - by : me), 32, at);
  }
  template <class T>
  T shfl_xor(T value, unsigned by, simt::Place at = simt::here()) const {
    unsigned to = thread_rank() ^ by;
    return __shfl_sync(mask, value, detail::nth(mask, to < size() ? to : thread_rank()), 32, at);
  }
  unsigned ballot(int said, simt::Place at = simt::here()) const { return by_rank(__ballot_sync(mask, said, at)); }
  int any(int said, simt::Place at = simt::here()) const { return __any_sync(mask, said, at); }
  int all(int said, simt::Place at = simt::here()) const { return __all_sync(mask, said, at); }
  template <class T>
  unsigned match_any(T value, simt::Place at = simt::here()) const {
    return by_rank(__match_any_sync(mask, value, at));
  }
  template <class T>
  unsigned match_all(T value, int& same, simt::Place at = simt::here()) const {
    return by_rank(__match_all_sync(mask, value, &same, at));
  }

 private:
  // Bits by lane become bits by rank.
  unsigned by_rank(unsigned lanes) const {
    unsigned found = 0;
    for (unsigned r = 0; r < size(); ++r) found |= (lanes >> detail::nth(mask, r) & 1u) << r;
    return found;
  }
};

template <unsigned N, class Parent = void>
struct thread_block_tile : lanes_of_warp {
  static_assert(N && N <= 32 && !(N & (N - 1)), "tiles have 1, 2, 4, 8, 16 or 32 threads here");
  thread_block_tile() {
    unsigned begin = detail::lane() / N * N, warp = detail::rank_in_block() / 32 * 32;
    unsigned there = detail::block_size() - warp;  // the last warp of a block may be cut short
    mask = detail::low_bits(N) << begin & detail::low_bits(there);
  }
  template <class Other>  // the same tile, whose parent nobody names
  thread_block_tile(const thread_block_tile<N, Other>& same) : lanes_of_warp(same) {}
  static unsigned thread_rank() { return detail::lane() % N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return detail::rank_in_block() / N; }
  static unsigned meta_group_size() { return (detail::block_size() + N - 1) / N; }
};
template <unsigned N, class Parent>
inline thread_block_tile<N, Parent> tiled_partition(const Parent&) {
  return {};
}

struct coalesced_group : lanes_of_warp {};
inline coalesced_group coalesced_threads(simt::Place at = simt::here()) {
  coalesced_group g;
  g.mask = simt::active_lanes(at);
  return g;
}
// Those of a group who say the same.
template <class Group, class T>
inline coalesced_group labeled_partition(const Group& g, T label, simt::Place at = simt::here()) {
  coalesced_group found;
  found.mask = __match_any_sync(g.mask, label, at);
  return found;
}
template <class Group>
inline coalesced_group binary_partition(const Group& g, bool said, simt::Place at = simt::here()) {
  coalesced_group found;
  unsigned yes = __ballot_sync(g.mask, said, at);
  found.mask = said ? yes : g.mask & ~yes;
  return found;
}
// Any of them, of which no more is asked.
struct thread_group {
  lanes_of_warp lanes;  // none: the block
  thread_group(const thread_block&) {}
  thread_group(const lanes_of_warp& g) : lanes(g) {}
  void sync(simt::Place at = simt::here()) const { lanes.mask ? lanes.sync(at) : thread_block::sync(at); }
  unsigned thread_rank() const { return lanes.mask ? lanes.thread_rank() : thread_block::thread_rank(); }
  unsigned size() const { return lanes.mask ? lanes.size() : thread_block::size(); }
  unsigned num_threads() const { return size(); }
};
inline thread_group this_thread() { return lanes_of_warp{1u << detail::lane()}; }
inline lanes_of_warp tiled_partition(const thread_group&, unsigned n) {
  lanes_of_warp g;
  g.mask = detail::low_bits(n) << (detail::lane() / n * n);
  return g;
}

template <class Group>
inline void sync(const Group& g, simt::Place at = simt::here()) {
  g.sync(at);
}

#define SIMT_FUNCTOR(NAME, EXPRESSION) \
  template <class T>                   \
  struct NAME {                        \
    T operator()(T a, T b) const { return EXPRESSION; } \
  };
SIMT_FUNCTOR(plus, a + b)
SIMT_FUNCTOR(less, b < a ? b : a)
SIMT_FUNCTOR(greater, a < b ? b : a)
SIMT_FUNCTOR(bit_and, a & b)
SIMT_FUNCTOR(bit_or, a | b)
SIMT_FUNCTOR(bit_xor, a ^ b)
#undef SIMT_FUNCTOR

// Everybody gets f over the whole group. Neighbours come together first, as in a tree: lanes stay in order, and the sum
// of a warp takes five shuffles and one that tells it.
template <class Group, class T, class F>
inline T reduce(const Group& g, T value, F f, simt::Place at = simt::here()) {
  unsigned size = __builtin_popcount(g.mask), me = g.thread_rank();
  for (unsigned by = 1; by < size; by *= 2) {
    T above = g.shfl_down(value, by, at);
    if (me % (2 * by) == 0 && me + by < size) value = f(value, above);
  }
  return g.shfl(value, 0, at);
}
template <class Group, class T, class F>
inline T inclusive_scan(const Group& g, T value, F f, simt::Place at = simt::here()) {
  unsigned size = __builtin_popcount(g.mask), me = g.thread_rank();
  T found = value;
  for (unsigned by = 1; by < size; by *= 2) {
    T below = g.shfl_up(found, by, at);
    if (me >= by) found = f(below, found);
  }
  return found;
}
template <class Group, class T>
inline T inclusive_scan(const Group& g, T value, simt::Place at = simt::here()) {
  return inclusive_scan(g, value, plus<T>{}, at);
}
template <class Group, class T, class F>
inline T exclusive_scan(const Group& g, T value, F f, simt::Place at = simt::here()) {
  T through = inclusive_scan(g, value, f, at), below = g.shfl_up(through, 1, at);
  return g.thread_rank() ? below : T(0);
}
template <class Group, class T>
inline T exclusive_scan(const Group& g, T value, simt::Place at = simt::here()) {
  return exclusive_scan(g, value, plus<T>{}, at);
}

// In the background; each is a batch of its own.
template <class Group>
SIMT_INLINE void memcpy_async(const Group& g, void* to, const void* from, size_t bytes) {
  simt::copy_share(to, from, bytes, g.thread_rank(), g.size());
  simt::commit_copies();
}
template <class Group, class T>
SIMT_INLINE void memcpy_async(const Group& g, T* to, size_t room, const T* from, size_t count) {
  memcpy_async(g, static_cast<void*>(to), from, std::min(room, count) * sizeof(T));
}
template <unsigned But, class Group>
inline void wait_prior(const Group& g, simt::Place at = simt::here()) {
  simt::wait_for_copies(But);
  g.sync(at);
}
template <class Group>
inline void wait(const Group& g, simt::Place at = simt::here()) {
  wait_prior<0>(g, at);
}
}  // namespace cooperative_groups
