// Matrix products of a warp: nvcuda::wmma with a layout of its own. Element e of lane l is number e * 32 + (l ^ 17) of
// the tile in row-major order; programs may not rely on another (CUDA C++ Programming Guide, "Warp Matrix Functions").
// So a lane that fills a tile in order does not get back what it has written itself. Lanes meet, which orders no memory:
// loads and stores are weak ones (PTX ISA, wmma.load), and a tile in shared memory needs __syncwarp() at least.
// Products are exact and sums are rounded one by one to the accumulator's type, from the first k to the last.
#pragma once

namespace nvcuda {
namespace wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}

namespace detail {
// What an element is kept as, by what it is called.
template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<precision::tf32> {
  using type = float;
};

template <class Use, int m, int n, int k>
struct Extent;
template <int m, int n, int k>
struct Extent<matrix_a, m, n, k> {
  static constexpr int rows = m, cols = k;
};
template <int m, int n, int k>
struct Extent<matrix_b, m, n, k> {
  static constexpr int rows = k, cols = n;
};
template <int m, int n, int k>
struct Extent<accumulator, m, n, k> {
  static constexpr int rows = m, cols = n;
};

// The shapes that tensor cores have.
template <class T, int m, int n, int k>
constexpr bool has_shape() {
  if (std::is_same_v<T, double>) return m == 8 && n == 8 && k == 4;
  if (std::is_same_v<T, precision::tf32>) return m == 16 && n == 16 && k == 8;
  return k == 16 && m * n == 256 && (m == 8 || m == 16 || m == 32);
}

inline unsigned lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
// The number of element e of a lane.
inline int number_of(int e, int lane) { return e * 32 + (lane ^ 17); }
}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(std::is_same_v<Use, accumulator> || detail::has_shape<T, m, n, k>(),
                "tensor cores have no products of this shape and type");
  using element_type = T;
  using storage_element_type = typename detail::Stored<T>::type;
  using Size = detail::Extent<Use, m, n, k>;
  static constexpr int num_elements = Size::rows * Size::cols / 32, num_storage_elements = num_elements;
  storage_element_type x[num_elements];
};

inline float __float_to_tf32(float x) {
  // To nearest, ties away from zero, as the machine code of cvt.rna.tf32.f32: NaN may become Inf.
  unsigned bits = simt::bits<unsigned>(x);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
  return simt::bits<float>(bits & 0xffffe000u);
}

template <class F, class T>
inline void fill_fragment(F& f, const T& value) {
  for (int e = 0; e < f.num_elements; ++e) f.x[e] = static_cast<typename F::storage_element_type>(value);
}

namespace detail {
template <class F, class P>
inline void check_address(const F&, const P* at, unsigned stride, simt::Place place) {
  if (reinterpret_cast<uintptr_t>(at) % 32)
    simt::fail(simt::Trouble::misaligned, place, "of a tile, which must be a multiple of 32 bytes,");
  if (stride * sizeof(P) % 16 && sizeof(P) < 8)
    simt::fail(simt::Trouble::misaligned, place, "of a tile's rows, which must be multiples of 16 bytes apart,");
}

template <class F, class Each>
SIMT_INLINE void visit(const F&, unsigned stride, bool by_rows, Each each) {
  for (int e = 0; e < F::num_elements; ++e) {
    unsigned i = number_of(e, lane()), row = i / F::Size::cols, col = i % F::Size::cols;
    each(e, by_rows ? row * static_cast<size_t>(stride) + col : col * static_cast<size_t>(stride) + row);
  }
}

inline void together(simt::Place at) { simt::warp_together([](uint64_t*) {}, 0, at); }
}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout, class P>
inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const P* at, unsigned stride,
                             simt::Place place = simt::here()) {
  detail::together(place);
  detail::check_address(f, at, stride, place);
  detail::visit(f, stride, std::is_same_v<Layout, row_major>, [&](int e, size_t where) { f.x[e] = at[where]; });
}
template <int m, int n, int k, class T, class P>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const P* at, unsigned stride, layout_t layout,
                             simt::Place place = simt::here()) {
  detail::together(place);
  detail::check_address(f, at, stride, place);
  detail::visit(f, stride, layout == mem_row_major, [&](int e, size_t where) { f.x[e] = at[where]; });
}
template <int m, int n, int k, class T, class P>
inline void store_matrix_sync(P* at, const fragment<accumulator, m, n, k, T>& f, unsigned stride, layout_t layout,
                              simt::Place place = simt::here()) {
  detail::together(place);
  detail::check_address(f, at, stride, place);
  detail::visit(f, stride, layout == mem_row_major, [&](int e, size_t where) { at[where] = f.x[e]; });
}

namespace detail {
// In what products are summed: integers wrap around, half and float in float.
template <class T>
struct Sum {
  using type = float;
};
template <>
struct Sum<double> {
  using type = double;
};
template <>
struct Sum<int> {
  using type = unsigned;
};

template <class S, class T>
inline S number(T x) {
  if constexpr (std::is_integral_v<T>) return static_cast<S>(static_cast<int>(x));
  else return static_cast<S>(static_cast<float>(x));
}
template <>
inline double number<double, double>(double x) {
  return x;
}

// An element of a fragment as products take it: of tf32 nobody looks at the last 13 bits.
template <class S, class F>
inline S operand(const F& f, int e) {
  if constexpr (std::is_same_v<typename F::element_type, precision::tf32>)
    return simt::bits<float>(simt::bits<unsigned>(f.x[e]) & 0xffffe000u);
  else return number<S>(f.x[e]);
}

template <int m, int n, int k, class A, class B, class C, class D>
struct Product {
  D* d;
  const A* a;
  const B* b;
  const C* c;

  static SIMT_UNSEEN void all(uint64_t* lanes) {
    using S = typename Sum<typename D::storage_element_type>::type;
    S a[m * k], b[k * n], d[m * n];
    for (int l = 0; l < 32; ++l) {
      const auto& mine = *reinterpret_cast<const Product*>(lanes[l]);
      for (int e = 0; e < A::num_elements; ++e) a[number_of(e, l)] = operand<S>(*mine.a, e);
      for (int e = 0; e < B::num_elements; ++e) b[number_of(e, l)] = operand<S>(*mine.b, e);
      for (int e = 0; e < C::num_elements; ++e) d[number_of(e, l)] = number<S>(mine.c->x[e]);
    }
    for (int i = 0; i < m; ++i)
      for (int p = 0; p < k; ++p)
        for (int j = 0; j < n; ++j) d[i * n + j] += a[i * k + p] * b[p * n + j];
    for (int l = 0; l < 32; ++l) {
      auto& mine = *reinterpret_cast<const Product*>(lanes[l]);
      for (int e = 0; e < D::num_elements; ++e)
        mine.d->x[e] = static_cast<typename D::storage_element_type>(d[number_of(e, l)]);
    }
  }
};
}  // namespace detail

template <int m, int n, int k, class TA, class LA, class TB, class LB, class TC, class TD>
inline void mma_sync(fragment<accumulator, m, n, k, TD>& d, const fragment<matrix_a, m, n, k, TA, LA>& a,
                     const fragment<matrix_b, m, n, k, TB, LB>& b, const fragment<accumulator, m, n, k, TC>& c,
                     simt::Place at = simt::here()) {
  using A = std::remove_reference_t<decltype(a)>;
  using B = std::remove_reference_t<decltype(b)>;
  using C = std::remove_reference_t<decltype(c)>;
  using D = std::remove_reference_t<decltype(d)>;
  using Whole = detail::Product<m, n, k, std::remove_const_t<A>, std::remove_const_t<B>, std::remove_const_t<C>, D>;
  Whole mine{&d, &a, &b, &c};
  simt::warp_together(&Whole::all, reinterpret_cast<uint64_t>(&mine), at);
}
}  // namespace wmma
}  // namespace nvcuda
