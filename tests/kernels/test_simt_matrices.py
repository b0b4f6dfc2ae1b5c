"""Matrix products of a warp (nvcuda::wmma), of every type and shape, with tiles laid out either way."""

import ml_dtypes
import numpy as np
import pytest
from _simt import CHECK, Kernels, aligned, blank

from kernel_assay.kernels.backends.simt.emulator import Trouble

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include <mma.h>
using namespace nvcuda;

template <class T, class Sum, int m, int n, int k, class A, class B>
__global__ void product(Sum* out, const T* a, const T* b, const Sum* c, int lda, int ldb) {
  wmma::fragment<wmma::matrix_a, m, n, k, T, A> fa;
  wmma::fragment<wmma::matrix_b, m, n, k, T, B> fb;
  wmma::fragment<wmma::accumulator, m, n, k, Sum> fc;
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  wmma::load_matrix_sync(fc, c, n, wmma::mem_row_major);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(out, fc, m, wmma::mem_col_major);
}
template <bool rounded>
__global__ void tf32(float* out, const float* a, const float* b) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
  wmma::fill_fragment(fc, 0.5f);
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 16);
  for (int i = 0; rounded && i < fa.num_elements; ++i) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
  for (int i = 0; rounded && i < fb.num_elements; ++i) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(out, fc, 16, wmma::mem_row_major);
}
// Four warps, a tile of the result each, from tiles in shared memory.
__global__ void tiled(float* out, const __half* a, const __half* b, int n) {
  __shared__ __align__(32) __half as[32][16], bs[16][32];
  int warp = threadIdx.y, row = warp / 2 * 16, col = warp % 2 * 16, me = threadIdx.y * 32 + threadIdx.x;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    for (int i = me; i < 512; i += 128) {
      as[i / 16][i % 16] = a[(blockIdx.y * 32 + i / 16) * n + k + i % 16];
      bs[i / 32][i % 32] = b[(k + i / 32) * n + blockIdx.x * 32 + i % 32];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, &as[row][0], 16);
    wmma::load_matrix_sync(fb, &bs[0][col], 32);
    wmma::mma_sync(sum, fa, fb, sum);
    __syncthreads();
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2;
  wmma::store_matrix_sync(out + (blockIdx.y * 32 + row) * n + blockIdx.x * 32 + col, sum, n, wmma::mem_row_major);
}
"""
WIDE = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
TYPES = {
    ("__half", "float"): (np.float16, np.float32, WIDE),
    ("__half", "__half"): (np.float16, np.float16, WIDE),
    ("__nv_bfloat16", "float"): (ml_dtypes.bfloat16, np.float32, WIDE),
    ("signed char", "int"): (np.int8, np.int32, WIDE),
    ("unsigned char", "int"): (np.uint8, np.int32, WIDE),
    ("double", "double"): (np.float64, np.float64, ((8, 8, 4),)),
}
PRODUCTS = [
    (*types, *shape, a, b)
    for types, (_, _, shapes) in TYPES.items()
    for shape in shapes
    for a, b in ([("row", "row"), ("col", "col")] if shape == shapes[0] else [("row", "col")])
]


def instance(t, total, m, n, k, a, b):
    return f"product<{t}, {total}, {m}, {n}, {k}, wmma::{a}_major, wmma::{b}_major>"


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(
        tmp_path_factory.mktemp("matrices"), SOURCE, "tf32<true>", "tf32<false>", *(instance(*p) for p in PRODUCTS)
    )


def drawn(rows, cols, dtype, seed):
    """Numbers so small that no sum is rounded, but for integers: those are of the whole range."""
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if np.dtype(dtype).kind in "iu" else (-4, 5)
    return np.random.default_rng(seed).integers(low, high, (rows, cols)).astype(dtype)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: "-".join(map(str, p)).replace(" ", "_"))
def test_a_tile_is_multiplied_and_added(kernels, product):
    t, total, m, n, k, way_a, way_b = product
    dtype, sum_dtype, _ = TYPES[t, total]
    a, b, c = drawn(m, k, dtype, 1), drawn(k, n, dtype, 2), drawn(m, n, sum_dtype, 3) // 4
    laid = {"a": aligned(a if way_a == "row" else a.T), "b": aligned(b if way_b == "row" else b.T), "c": aligned(c)}
    steps = {"lda": k if way_a == "row" else m, "ldb": n if way_b == "row" else k}
    out = blank((n, m), sum_dtype)
    found = kernels.right(instance(*product), block=32, out=out, **laid, **steps)
    wide = np.int64 if np.dtype(sum_dtype).kind == "i" else np.float64
    wanted = a.astype(wide) @ b.astype(wide) + c.astype(wide)
    np.testing.assert_array_equal(found.T, wanted.astype(sum_dtype))


def test_tf32_has_ten_bits_and_ties_go_away_from_zero(kernels):
    a, b = aligned(np.eye(16, 8, dtype=np.float32)), aligned(np.zeros((8, 16), np.float32))
    b[0, :6] = [1 + 2.0**-11, -1 - 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 - 2.0**-20, 1 + 2.0**-10, 3.0]
    found = kernels.right("tf32<true>", block=32, out=blank((16, 16)), a=a, b=b)
    assert (found[0, :6] - 0.5).tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1 + 2 * 2.0**-10, 1, 1 + 2.0**-10, 3]
    assert (found[1:] == 0.5).all()


@pytest.mark.parametrize("rounded", ["true", "false"])
def test_tensor_cores_look_at_ten_bits_of_tf32_and_may_take_nan_for_inf(kernels, rounded):
    a, b = aligned(np.zeros((16, 8), np.float32)), aligned(np.zeros((8, 16), np.float32))
    a[0, 0] = 1
    b[0, :4].view(np.uint32)[:] = [0x7F800001, 0xFF801FFF, 0x7F802000, 0x7FC00001]
    b[0, 4:6] = [1 + 2.0**-11 - 2.0**-20, -1 - 3 * 2.0**-12]
    found = kernels.right(f"tf32<{rounded}>", block=32, out=blank((16, 16)), a=a, b=b)[0, :6] - 0.5
    np.testing.assert_array_equal(found[:5], [np.inf, -np.inf, np.nan, np.nan, 1])
    assert found[5] == (-1 - 2.0**-10 if rounded == "true" else -1)


def test_a_product_of_many_tiles(kernels):
    a, b = aligned(drawn(64, 64, np.float16, 4)), aligned(drawn(64, 64, np.float16, 5))
    found = kernels.right("tiled", grid=(2, 2), block=(32, 4), out=blank((64, 64)), a=a, b=b, n=64)
    np.testing.assert_array_equal(found, 2 * (a.astype(np.float32) @ b.astype(np.float32)))


STAGED = r"""
#include <mma.h>
using namespace nvcuda;
template <bool met>
__global__ void staged(float* out, const __half* a) {
  __shared__ __align__(32) __half tile[256];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  wmma::load_matrix_sync(fb, a, 16);
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] = a[i];
  if (met) __syncwarp();
  wmma::load_matrix_sync(fa, tile, 16);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(out, fc, 16, wmma::mem_row_major);
}
"""


def test_loading_a_tile_orders_no_memory(tmp_path):
    kernels, a = Kernels(tmp_path, STAGED, "staged<true>", "staged<false>"), aligned(drawn(16, 16, np.float16, 6))
    out = aligned(blank((16, 16)))
    assert not kernels.run("staged<true>", out=out, a=a, mode=CHECK).said
    np.testing.assert_array_equal(out, a.astype(np.float32) @ a.astype(np.float32))
    assert kernels.run("staged<false>", out=aligned(blank((16, 16))), a=a, mode=CHECK).trouble is Trouble.RACE
