// Thrust's algorithms run on the host here, one thread after the other. Those of the device, thrust::cuda, are the host's
// with two differences: what they access counts as work of the device in a stream, and that is told from the host's own
// algorithms by the type of the policy, as on a device.
#pragma once
#include_next <thrust/system/cpp/detail/execution_policy.h>
#ifdef SIMT_THRUST
#include <thrust/detail/allocator_aware_execution_policy.h>
#include <thrust/detail/execute_with_allocator_fwd.h>

#include <type_traits>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace cuda {
namespace detail {
struct in_stream {
  cudaStream_t stream = nullptr;
  bool waits = true;  // the host, for the algorithm's end
};

struct tag;
template <class Derived>
struct execution_policy;
template <>
struct execution_policy<tag> : thrust::system::detail::sequential::execution_policy<tag> {
  using tag_type = tag;
};
struct tag : execution_policy<tag> {};
template <class Derived>
struct execution_policy : thrust::system::detail::sequential::execution_policy<Derived> {
  using tag_type = tag;
  operator tag() const { return {}; }
};

template <class Derived>
struct streamed : execution_policy<Derived>, in_stream {
  Derived on(cudaStream_t s) const {
    Derived made = static_cast<const Derived&>(*this);
    made.stream = s;
    return made;
  }
};
struct par_t : streamed<par_t>, thrust::detail::allocator_aware_execution_policy<streamed> {};
struct nosync_t : streamed<nosync_t>, thrust::detail::allocator_aware_execution_policy<streamed> {
  nosync_t() { waits = false; }
};

// Of a host and a device the device's.
template <class A, class B>
A& select_system(execution_policy<A>& device, cpp::execution_policy<B>&) { return static_cast<A&>(device); }
template <class A, class B>
B& select_system(cpp::execution_policy<A>&, execution_policy<B>& device) { return static_cast<B&>(device); }

// While there is one, this thread's accesses are the device's; in a kernel it means nothing.
class Acting {
  in_stream where;

 public:
  template <class P>
  Acting(const P& policy, const char* name) {
    if constexpr (std::is_base_of_v<in_stream, P>) where = policy;
    simt_algorithm_begins(name, where.stream);
  }
  Acting(const Acting&) = delete;
  ~Acting() { simt_algorithm_ends(where.stream, where.waits); }
};

// Found before the host's, because the policy's type says more; what it then calls is the host's.
#define SIMT_ALGORITHM(NAME)                              \
  template <class P, class... A>                          \
  auto NAME(execution_policy<P>& policy, A&&... arguments) { \
    Acting acting(static_cast<P&>(policy), "thrust::" #NAME); \
    cpp::tag host;                                        \
    return NAME(host, arguments...);                      \
  }
#define SIMT_ALGORITHMS(A, B, C, D, E, F) \
  SIMT_ALGORITHM(A) SIMT_ALGORITHM(B) SIMT_ALGORITHM(C) SIMT_ALGORITHM(D) SIMT_ALGORITHM(E) SIMT_ALGORITHM(F)
SIMT_ALGORITHMS(get_value, assign_value, iter_swap, adjacent_difference, all_of, any_of)
SIMT_ALGORITHMS(none_of, lower_bound, upper_bound, binary_search, equal_range, equal)
SIMT_ALGORITHMS(copy, copy_n, copy_if, count, count_if, mismatch)
SIMT_ALGORITHMS(min_element, max_element, minmax_element, fill, fill_n, find)
SIMT_ALGORITHMS(find_if, find_if_not, for_each, for_each_n, gather, gather_if)
SIMT_ALGORITHMS(generate, generate_n, inner_product, merge, merge_by_key, partition)
SIMT_ALGORITHMS(partition_copy, stable_partition, stable_partition_copy, partition_point, is_partitioned, reduce)
SIMT_ALGORITHMS(reduce_by_key, reduce_into, remove, remove_if, remove_copy, remove_copy_if)
SIMT_ALGORITHMS(replace, replace_if, replace_copy, replace_copy_if, reverse, reverse_copy)
SIMT_ALGORITHMS(inclusive_scan, exclusive_scan, inclusive_scan_by_key, exclusive_scan_by_key, scatter, scatter_if)
SIMT_ALGORITHMS(set_difference, set_intersection, set_symmetric_difference, set_union, sequence, tabulate)
SIMT_ALGORITHMS(set_difference_by_key, set_intersection_by_key, set_symmetric_difference_by_key, set_union_by_key, shuffle, shuffle_copy)
SIMT_ALGORITHMS(sort, stable_sort, sort_by_key, stable_sort_by_key, is_sorted, is_sorted_until)
SIMT_ALGORITHMS(swap_ranges, transform, transform_if, transform_reduce, transform_inclusive_scan, transform_exclusive_scan)
SIMT_ALGORITHMS(uninitialized_copy, uninitialized_copy_n, uninitialized_fill, uninitialized_fill_n, unique, unique_copy)
SIMT_ALGORITHMS(unique_by_key, unique_by_key_copy, unique_count, transform_n, transform_if_n, transform_reduce_into)
#undef SIMT_ALGORITHMS
#undef SIMT_ALGORITHM
}  // namespace detail
using detail::execution_policy;
using detail::tag;
inline const detail::par_t par;
inline const detail::nosync_t par_nosync;
}  // namespace cuda
}  // namespace system
namespace cuda {
using thrust::system::cuda::execution_policy;
using thrust::system::cuda::par;
using thrust::system::cuda::par_nosync;
using thrust::system::cuda::tag;
}  // namespace cuda
THRUST_NAMESPACE_END
#endif
