"""Operations of a warp and cooperative groups give each lane what the CUDA C++ Programming Guide says."""

import numpy as np
import pytest
from _simt import Kernels, blank

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
#define ME threadIdx.x
#define ALL 0xffffffffu

template <class T>
__global__ void shuffled(T* out, const T* x, int what, int by, int width) {
  T v = x[ME];
  out[ME] = what == 0 ? __shfl_sync(ALL, v, by, width) : what == 1 ? __shfl_up_sync(ALL, v, by, width)
          : what == 2 ? __shfl_down_sync(ALL, v, by, width) : __shfl_xor_sync(ALL, v, by, width);
}
__global__ void shuffled_from(int* out, const int* x) {
  int v = x[ME];
  out[ME] = __shfl_sync(ALL, v, v) + 100 * __shfl_up_sync(ALL, v, 1) + 10000 * __shfl_xor_sync(ALL, v, 31);
}
__global__ void voted(int* out, const int* x) {
  int* at = out + 4 * ME;
  at[0] = __ballot_sync(ALL, x[ME]), at[1] = __any_sync(ALL, x[ME]);
  at[2] = __all_sync(ALL, x[ME]), at[3] = __uni_sync(ALL, x[ME]);
}
template <class T>
__global__ void matched(int* out, const T* x) {
  int same = -1;
  out[3 * ME] = __match_any_sync(ALL, x[ME]);
  out[3 * ME + 1] = __match_all_sync(ALL, x[ME], &same);
  out[3 * ME + 2] = same;
}
template <class T>
__global__ void reduced(T* out, const T* x) {
  T* at = out + 3 * ME;
  at[0] = __reduce_add_sync(ALL, x[ME]), at[1] = __reduce_min_sync(ALL, x[ME]), at[2] = __reduce_max_sync(ALL, x[ME]);
}
__global__ void reduced_bits(unsigned* out, const unsigned* x) {
  unsigned* at = out + 3 * ME;
  at[0] = __reduce_and_sync(ALL, x[ME]), at[1] = __reduce_or_sync(ALL, x[ME]), at[2] = __reduce_xor_sync(ALL, x[ME]);
}
__global__ void in_parts(int* out, const int* x) {
  unsigned odd = 0xaaaaaaaau, mask = ME & 1 ? odd : ~odd;
  int sum = x[ME];
  for (int by = 2; by < 32; by *= 2) sum += __shfl_xor_sync(mask, sum, by);
  if (ME & 1) __syncwarp(odd);
  out[ME] = sum + (ME & 1 ? __reduce_add_sync(odd, 1000) : 0);
}
__global__ void through_shared(int* out) {
  __shared__ volatile int s[64];
  int half = ME % 32 / 16, base = ME / 16 * 16;
  unsigned mask = half ? 0xffff0000u : 0x0000ffffu;
  s[ME] = ME;
  __syncwarp(mask);
  int other = s[base + (ME + 1) % 16];
  __syncwarp(mask);
  s[ME] = other;
  __syncwarp();
  out[ME] = s[ME ^ 16];
}
__global__ void active(unsigned* out) {
  if (ME % 3 == 0) out[ME] = __activemask();
  else if (ME < 10) out[ME] = __activemask();
  else out[ME] = 7;
}
__global__ void aggregated(int* out) {
  __shared__ int count;
  if (ME == 0) count = 0;
  __syncthreads();
  if (ME % 2) {
    auto g = cg::coalesced_threads();
    int first = g.thread_rank() == 0 ? atomicAdd(&count, (int)g.size()) : 0;
    out[ME] = g.shfl(first, 0) % 16 + g.thread_rank();  // the warps take turns in any order
  } else out[ME] = -2;
}
__global__ void some_ended(int* out, int stay) {
  if (ME >= stay) return;
  unsigned here = __activemask();
  out[ME] = __reduce_add_sync(ALL, 1) + 100 * __popc(here);
}

__global__ void end_later(int* out, int stay) {
  if (ME % 32 < stay) out[ME] = __reduce_add_sync(ALL, 1);
}

// ---- cooperative groups ----
__global__ void block_of(int* out) {
  auto block = cg::this_thread_block();
  __shared__ int s[64];
  s[block.thread_rank()] = block.thread_rank();
  block.sync();
  int* at = out + 6 * (blockIdx.x * block.size() + block.thread_rank());
  at[0] = s[block.size() - 1 - block.thread_rank()], at[1] = block.group_index().x, at[2] = block.thread_index().y;
  at[3] = block.dim_threads().y, at[4] = cg::this_grid().thread_rank(), at[5] = cg::this_grid().size();
  cg::sync(block);
}
template <int N>
__global__ void tiles(int* out, const int* x) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<N>(block);
  int v = x[ME], *at = out + 16 * ME, same = -1;
  at[0] = tile.thread_rank(), at[1] = tile.size(), at[2] = tile.meta_group_rank(), at[3] = tile.meta_group_size();
  at[4] = tile.shfl(v, 1), at[5] = tile.shfl_up(v, 1), at[6] = tile.shfl_down(v, 1), at[7] = tile.shfl_xor(v, N / 2);
  at[8] = tile.ballot(v & 1), at[9] = tile.any(v & 1) + 2 * tile.all(v & 1), at[10] = tile.match_any(v % 3);
  at[11] = tile.match_all(v % 3, same) + same;
  at[12] = cg::reduce(tile, v, cg::plus<int>()), at[13] = cg::reduce(tile, v, cg::greater<int>());
  at[14] = cg::inclusive_scan(tile, v), at[15] = cg::exclusive_scan(tile, v);
  tile.sync();
}
__global__ void nested(int* out, const int* x) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto four = cg::tiled_partition<4>(warp);
  auto eight = cg::tiled_partition(cg::this_thread_block(), 8);
  eight.sync();
  out[ME] = cg::reduce(four, x[ME], cg::less<int>()) + 1000 * eight.thread_rank() + 10000 * eight.size();
}
__global__ void coalesced(int* out, const int* x) {
  out[ME] = -3;
  if (x[ME] % 2) {
    auto g = cg::coalesced_threads();
    out[ME] = cg::reduce(g, x[ME], cg::plus<int>()) + 1000 * g.thread_rank() + 100000 * cg::exclusive_scan(g, 1);
  }
}
__global__ void scanned(float* out, const float* x) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  out[ME] = cg::inclusive_scan(warp, x[ME], [](float a, float b) { return fmaxf(a, b); });
}
__global__ void ordered(int* out, const int* x, int most) {
  if (x[ME] >= most) return;
  auto g = cg::coalesced_threads();
  auto last = [](int, int b) { return b; };
  out[2 * ME] = cg::reduce(g, (int)ME, last), out[2 * ME + 1] = cg::reduce(g, (int)ME, [](int a, int) { return a; });
}
__global__ void partitioned(int* out, const int* x) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto same = cg::labeled_partition(warp, x[ME] % 3);
  auto odd = cg::binary_partition(warp, x[ME] % 2);
  auto both = cg::labeled_partition(odd, x[ME] % 3);
  int* at = out + 4 * ME;
  at[0] = cg::reduce(same, x[ME], cg::plus<int>()), at[1] = same.thread_rank() + 100 * same.size();
  at[2] = cg::reduce(odd, x[ME], cg::plus<int>()), at[3] = cg::reduce(both, 1, cg::plus<int>());
}
"""

TYPES = {
    "int": np.int32,
    "unsigned char": np.uint8,
    "long long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "__half": np.float16,
    "__half2": np.uint32,
    "__nv_bfloat162": np.uint32,
}
COUNTS = (32, 16, 8, 4, 2, 1)
INSTANCES = (
    *(f"shuffled<{t}>" for t in TYPES),
    *(f"matched<{t}>" for t in ("int", "long long", "float", "double")),
    *("reduced<int>", "reduced<unsigned>"),
    *(f"tiles<{n}>" for n in COUNTS),
)
LANES = np.arange(64)


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("warps"), SOURCE, *INSTANCES)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(3).integers(0, 99, 64, dtype=np.int32)


def source(what, lane, by, width):
    """The lane of its warp that one reads from (PTX ISA, shfl.sync)."""
    begin = lane // width * width
    if what == "idx":
        return begin + by % width
    found = {"up": lane - by, "down": lane + by, "xor": lane ^ by}[what]
    return found if (found >= begin if what == "up" else found < begin + width) else lane


SHUFFLES = ("idx", "up", "down", "xor")


@pytest.mark.parametrize("what", SHUFFLES)
@pytest.mark.parametrize(
    ("by", "width"), [(0, 32), (1, 32), (16, 32), (31, 32), (5, 16), (1, 8), (3, 8), (1, 2), (2, 1)]
)
def test_shuffles_read_from_the_lane_that_ptx_names(kernels, what, by, width):
    found = kernels.right(
        "shuffled<int>",
        block=64,
        out=blank(64, np.int32),
        x=LANES.astype(np.int32),
        what=SHUFFLES.index(what),
        by=by,
        width=width,
    )
    assert found.tolist() == [i // 32 * 32 + source(what, i % 32, by, width) for i in range(64)]


@pytest.mark.parametrize("c_type", TYPES)
def test_values_of_up_to_eight_bytes_travel(kernels, c_type):
    bits = np.random.default_rng(2).integers(0, 256, (64, np.dtype(TYPES[c_type]).itemsize), dtype=np.uint8)
    given = bits.view(TYPES[c_type]).ravel()
    found = kernels.run(
        f"shuffled<{c_type}>", block=64, out=(out := blank(64, given.dtype)), x=given, what=3, by=5, width=32
    )
    assert found.said == ""
    assert out.tobytes() == given[LANES ^ 5].tobytes()


def test_each_lane_may_name_another(kernels):
    given = LANES[::-1].astype(np.int32)
    lane, warp = LANES % 32, LANES // 32 * 32
    wanted = given[warp + given % 32] + 100 * given[warp + np.maximum(lane - 1, 0)] + 10000 * given[warp + (lane ^ 31)]
    # The first lane of shfl_up keeps its own.
    assert kernels.right("shuffled_from", block=64, out=blank(64, np.int32), x=given).tolist() == wanted.tolist()


def mask_of(yes):
    """Of lanes, as the int that holds its bits."""
    return int(np.array([sum(1 << i for i, y in enumerate(yes) if y)], np.uint32).view(np.int32)[0])


def test_votes(kernels, x):
    given = np.concatenate([x % 2, np.zeros(32), np.ones(32)]).astype(np.int32)
    found = kernels.right("voted", block=128, out=blank((128, 4), np.int32), x=given)
    for w, said in enumerate(given.reshape(4, 32)):
        wanted = [mask_of(said), said.any(), said.all(), said.all() or not said.any()]
        assert found[32 * w : 32 * w + 32].tolist() == [wanted] * 32


@pytest.mark.parametrize("c_type", ["int", "long long", "float", "double"])
def test_matches(kernels, x, c_type):
    given = np.concatenate([x % 3, np.full(32, 7)]).astype(TYPES[c_type])
    found = kernels.right(f"matched<{c_type}>", block=96, out=blank((96, 3), np.int32), x=given)
    for i, row in enumerate(found.tolist()):
        warp = given[i // 32 * 32 :][:32]
        same = (warp == given[i]).all()
        assert row == [mask_of(warp == given[i]), -1 if same else 0, same]


def test_reductions(kernels, x):
    for c_type, given in (("int", x - 50), ("unsigned", (x - 50).view(np.uint32))):
        found = kernels.right(f"reduced<{c_type}>", block=64, out=blank((64, 3), given.dtype), x=given)
        for i, row in enumerate(found):
            warp = given[i // 32 * 32 :][:32]
            assert row.tolist() == [warp.sum(dtype=given.dtype), warp.min(), warp.max()]
    given = np.random.default_rng(4).integers(0, 2**32, 64, dtype=np.uint32) | np.uint32(0x00010010)
    found = kernels.right("reduced_bits", block=64, out=blank((64, 3), np.uint32), x=given)
    for i, row in enumerate(found):
        warp = given[i // 32 * 32 :][:32]
        assert row.tolist() == [f.reduce(warp) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]


def test_lanes_of_a_partial_mask_meet_without_the_others(kernels, x):
    odd = LANES % 2
    warps = x.reshape(2, 16, 2).sum(axis=1)
    wanted = [warps[i // 32, i % 2] + (16000 if odd[i] else 0) for i in range(64)]
    assert kernels.right("in_parts", block=64, out=blank(64, np.int32), x=x).tolist() == wanted
    turned = [i // 16 * 16 + (i + 1) % 16 for i in range(64)]
    wanted = [turned[i ^ 16] for i in range(64)]
    assert kernels.right("through_shared", block=64, out=blank(64, np.int32)).tolist() == wanted


def test_lanes_that_are_active_together(kernels):
    found = kernels.right("active", block=64, out=blank(64, np.uint32)).tolist()
    first, second = (sum(1 << i % 32 for i in range(b, b + 32) if i % 3 == 0) for b in (0, 32))
    few = sum(1 << i for i in range(10) if i % 3)
    assert found == [[first, second][i // 32] if i % 3 == 0 else few if i < 10 else 7 for i in range(64)]
    ended = kernels.right("some_ended", block=40, out=blank(37, np.int32), stay=37).tolist()
    assert ended == [3232] * 32 + [505] * 5


def test_lanes_that_end_are_waited_for_no_longer(kernels):
    found = kernels.right("end_later", block=64, out=blank(64, np.int32), stay=20)
    assert found.tolist() == ([20] * 20 + [-1] * 12) * 2


def test_the_lanes_of_a_branch_reserve_places_with_one_atomic(kernels):
    found = kernels.right("aggregated", block=64, out=blank(64, np.int32))
    assert found.tolist() == [(i % 32) // 2 if i % 2 else -2 for i in range(64)]


# ---- cooperative groups ----------------------------------------------------------------------------------------------


def test_the_block_and_the_grid(kernels):
    found = kernels.right("block_of", grid=2, block=(8, 8), out=blank((128, 6), np.int32)).tolist()
    assert found == [[63 - i % 64, i // 64, i % 64 // 8, 8, i, 128] for i in range(128)]


@pytest.mark.parametrize("count", COUNTS)
def test_tiles(kernels, x, count):
    found = kernels.right(f"tiles<{count}>", block=64, out=blank((64, 16), np.int32), x=x).tolist()
    for i, row in enumerate(found):
        rank, begin = i % count, i // count * count
        tile = x[begin : begin + count].tolist()
        same = len({v % 3 for v in tile}) == 1
        assert row == [
            *(rank, count, i // count, 64 // count),
            tile[1 % count],
            tile[max(rank - 1, 0)],
            tile[min(rank + 1, count - 1)],
            tile[rank ^ count // 2],
            mask_of([v % 2 for v in tile]),
            any(v % 2 for v in tile) + 2 * all(v % 2 for v in tile),
            mask_of([v % 3 == tile[rank] % 3 for v in tile]),
            (mask_of([1] * count) + 1 if same else 0),
            *(sum(tile), max(tile), sum(tile[: rank + 1]), sum(tile[:rank])),
        ], i


def test_tiles_of_tiles(kernels, x):
    found = kernels.right("nested", block=64, out=blank(64, np.int32), x=x)
    assert found.tolist() == [x[i // 4 * 4 :][:4].min() + 1000 * (i % 8) + 80000 for i in range(64)]


def test_threads_that_come_together(kernels, x):
    found = kernels.right("coalesced", block=64, out=blank(64, np.int32), x=x).tolist()
    for w in (0, 32):
        odd = [i for i in range(w, w + 32) if x[i] % 2]
        for i in range(w, w + 32):
            rank = odd.index(i) if i in odd else 0
            assert found[i] == (sum(x[j] for j in odd) + 101000 * rank if i in odd else -3)


def test_a_scan_with_a_function(kernels, x):
    found = kernels.right("scanned", block=64, out=blank(64), x=x.astype(np.float32))
    assert found.tolist() == np.maximum.accumulate(x.reshape(2, 32), axis=1).ravel().tolist()


@pytest.mark.parametrize("most", [1, 30, 50, 99])
def test_a_reduction_keeps_the_order_of_any_number_of_lanes(kernels, x, most):
    found = kernels.right("ordered", block=64, out=blank((64, 2), np.int32), x=x, most=most)
    for w in (0, 32):
        there = [i for i in range(w, w + 32) if x[i] < most]
        assert all(found[i].tolist() == [there[-1], there[0]] for i in there)


def test_parts_of_a_group(kernels, x):
    found = kernels.right("partitioned", block=64, out=blank((64, 4), np.int32), x=x).tolist()
    for i in range(64):
        warp = range(i // 32 * 32, i // 32 * 32 + 32)
        same, odd = ([j for j in warp if x[j] % n == x[i] % n] for n in (3, 2))
        both = [j for j in same if j in odd]
        rank = same.index(i) + 100 * len(same)
        assert found[i] == [sum(x[j] for j in same), rank, sum(x[j] for j in odd), len(both)]
