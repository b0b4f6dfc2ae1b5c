"""Blocks, threads, shared memory, barriers, globals: what a kernel is launched into."""

import ctypes

import numpy as np
import pytest
from _simt import CHECK, FAST, Kernels, blank

from kernel_assay.kernels.backends.simt.emulator import ORDERS, Trouble

pytestmark = pytest.mark.usefixtures("simt_cache")

FLUSH = ctypes.CDLL(None).fflush
SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
__device__ int in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__device__ int in_grid() {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  return block * blockDim.x * blockDim.y * blockDim.z + in_block();
}

extern "C" __global__ void __launch_bounds__(24, 2) where(int* out) {
  int* at = out + 12 * in_grid();
  at[0] = threadIdx.x, at[1] = threadIdx.y, at[2] = threadIdx.z;
  at[3] = blockIdx.x, at[4] = blockIdx.y, at[5] = blockIdx.z;
  at[6] = blockDim.x, at[7] = blockDim.y, at[8] = blockDim.z;
  at[9] = gridDim.x, at[10] = gridDim.y, at[11] = gridDim.z;
}

// ---- shared memory ----
__global__ void reversed_static(int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void reversed_dynamic(int* out) {
  extern __shared__ __align__(16) int dynamic[];
  dynamic[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
}
__global__ void two_views(float* out) {
  extern __shared__ unsigned char bytes[];
  float* low = reinterpret_cast<float*>(bytes);
  double* high = reinterpret_cast<double*>(bytes + 64 * sizeof(float));
  low[threadIdx.x] = threadIdx.x, high[threadIdx.x] = 100.0 * threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = low[(threadIdx.x + 1) % 64] + high[(threadIdx.x + 1) % 64];
}
template <class T, int N>
__global__ void __launch_bounds__(N) reversed_template(T* out) {
  __shared__ T s[N];
  s[threadIdx.x] = T(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = s[N - 1 - threadIdx.x];
}
__shared__ int common[64];
__device__ __noinline__ int from_common(int i) { return common[i]; }
__global__ void at_namespace_scope(int* out) {
  common[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = from_common(blockDim.x - 1 - threadIdx.x);
}
__global__ void leftover(float* out) {
  __shared__ float fixed;
  extern __shared__ float moving[];
  if (threadIdx.x) fixed = moving[0] = 1;
  else out[2 * blockIdx.x] = fixed, out[2 * blockIdx.x + 1] = moving[0];
}
struct __align__(16) Quad { float v[4]; };
__global__ void aligned(int* out) {
  __shared__ char odd[3];
  __shared__ alignas(128) float after[4];
  alignas(64) __shared__ float before[4];
  __shared__ __align__(32) unsigned char raw[sizeof(Quad) * 2];
  __shared__ Quad quads[2][2];
  if (threadIdx.x < 3) odd[threadIdx.x] = 1;
  size_t addresses[] = {(size_t)after % 128, (size_t)before % 64, (size_t)raw % 32, (size_t)quads % 16};
  if (threadIdx.x < 4) out[threadIdx.x] = (int)addresses[threadIdx.x];
}

// ---- what nvcc has by itself ----
#include <device_launch_parameters.h>
__global__ void assumes(int* out, int n) {
  __builtin_assume(n > 0);
  out[threadIdx.x] = n;
}

// ---- barriers ----
__global__ void votes(int* out, int bit, int mask) {
  int me = threadIdx.x, yes = (me | mask) >> bit & 1;
  out[me] = __syncthreads_count(yes);
  out[blockDim.x + me] = __syncthreads_and(yes * 4);
  out[2 * blockDim.x + me] = __syncthreads_or(yes * 1024);
}
__global__ void some_leave(int* out, int stay) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  if (threadIdx.x >= stay) return;
  __syncthreads();
  out[threadIdx.x] = s[(threadIdx.x + 1) % stay] + 100 * __syncthreads_count(1);
}
__global__ void many_barriers(int* out) {
  __shared__ int s[64];
  int me = threadIdx.x, n = blockDim.x;
  s[me] = me;
#pragma unroll 1
  for (int i = 0; i < 40; ++i) {
    __syncthreads();
    int next = s[(me + 1) % n];
    __syncthreads();
    s[me] = next;
  }
  out[me] = s[me];
}

// ---- globals ----
__constant__ float table[4] = {1, 2, 4, 8};
__constant__ struct { int a; float b; } pair = {3, 0.5f};
__device__ int grown[4] = {10, 20, 30, 40};
__managed__ int managed = 5;
static __device__ const unsigned char lookup[4] = {3, 2, 1, 0};
__global__ void globals(float* out) {
  out[threadIdx.x] = table[lookup[threadIdx.x % 4]] * pair.b + pair.a + grown[1] + managed;
}

// ---- the last block adds up what all have written (CUDA C++ Programming Guide, "Memory Fence Functions") ----
__device__ unsigned finished = 0;
__global__ void last_block(float* out_sum, float* out_partial, const float* x, int n) {
  __shared__ float s[32];
  __shared__ bool last;
  int me = threadIdx.x;
  s[me] = 0;
  for (int i = blockIdx.x * 32 + me; i < n; i += 32 * gridDim.x) s[me] += x[i];
  for (int by = 16; by; by /= 2) {
    __syncthreads();
    if (me < by) s[me] += s[me + by];
  }
  if (me == 0) {
    out_partial[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && me == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += out_partial[b];
    out_sum[0] = sum;
  }
}

// ---- copies in the background ----
__global__ void pipelined(float* out, const float* x, int n) {
  __shared__ __align__(16) float tile[2][128];
  int me = threadIdx.x, tiles = (n + 127) / 128;
  auto fetch = [&](int t) {
    int at = t * 128 + 4 * me, left = 4 * max(0, min(4, n - at));
    __pipeline_memcpy_async(&tile[t % 2][4 * me], x + (left ? at : 0), 16, 16 - left);
    __pipeline_commit();
  };
  fetch(0);
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) fetch(t + 1);
    __pipeline_wait_prior(t + 1 < tiles);
    __syncthreads();
    for (int i = me; i < 128 && t * 128 + i < n; i += 32) out[t * 128 + i] = tile[t % 2][127 - (127 - i)] + (t % 2);
    __syncthreads();
  }
}

// ---- words ----
__global__ void speaks(int n) {
  if (threadIdx.x == 1) printf("block %d of %u: %.1f %s\n", blockIdx.x, gridDim.x, 0.5 * n, "words");
  assert(n == 7 && "seven, please");  // asserted
}

// ---- orders ----
__global__ void recorded(int* out) {
  __shared__ int turn;
  if (threadIdx.x == 0) turn = 0;
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    out[atomicAdd(&turn, 1)] = threadIdx.x;
    __syncwarp();
    out[atomicAdd(&turn, 1)] = threadIdx.x;
    __syncthreads();
  }
}
__device__ unsigned words_so_far = 0;
__global__ void says_two_words(int* out, int late) {
  int last = 2 * blockDim.x - 1, me = threadIdx.x;
  out[atomicInc(&words_so_far, last)] = me;
  if (me == late) __nanosleep(20);
  out[atomicInc(&words_so_far, last)] = ~me;
}
__device__ int blocks_so_far = 0;
__global__ void recorded_blocks(int* out) { out[atomicAdd(&blocks_so_far, 1) % gridDim.x] = blockIdx.x; }
"""


INSTANCES = {"float, 64": np.float32, "double, 32": np.float64, "__half, 48": np.float16, "unsigned char, 16": np.uint8}


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("threads"), SOURCE, *(f"reversed_template<{i}>" for i in INSTANCES))


@pytest.mark.parametrize(("grid", "block"), [((2, 3, 2), (4, 3, 2)), ((1, 1, 3), (1, 1, 24)), ((5, 1, 1), (24, 1, 1))])
def test_every_thread_knows_where_it_is(kernels, grid, block):
    found = kernels.right("where", grid=grid, block=block, out=blank((np.prod(grid) * 24, 12), np.int32))
    wanted = [
        [tx, ty, tz, bx, by, bz, *block, *grid]
        for bz in range(grid[2])
        for by in range(grid[1])
        for bx in range(grid[0])
        for tz in range(block[2])
        for ty in range(block[1])
        for tx in range(block[0])
    ]
    assert found.tolist() == wanted


# ---- shared memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "shared"), [("reversed_static", 0), ("reversed_dynamic", 256), ("at_namespace_scope", 0)]
)
def test_shared_memory_is_what_the_threads_of_a_block_share(kernels, entry, shared):
    grid = 1 if entry == "at_namespace_scope" else 3
    found = kernels.right(entry, grid=grid, block=64, shared=shared, out=blank((grid, 64), np.int32))
    assert found.tolist() == [[*range(63, -1, -1)]] * grid


def test_dynamic_shared_memory_may_be_cut_into_parts(kernels):
    found = kernels.right("two_views", block=64, shared=64 * 12, out=blank(64))
    assert found.tolist() == [101 * ((i + 1) % 64) for i in range(64)]


@pytest.mark.parametrize("instance", INSTANCES)
def test_shared_memory_of_a_template(kernels, instance):
    n = int(instance.partition(",")[2])
    found = kernels.right(f"reversed_template<{instance}>", block=n, out=blank(n, INSTANCES[instance]))
    assert found.tolist() == [*range(n - 1, -1, -1)]


def test_shared_memory_is_aligned_as_it_says(kernels):
    assert kernels.right("aligned", block=32, out=blank(4, np.int32)).tolist() == [0, 0, 0, 0]


def test_shared_memory_does_not_outlive_its_block(kernels):
    """NaN, or -1: what a kernel reads without having written."""
    out = blank(4, np.float32)
    assert kernels.run("leftover", grid=2, block=2, shared=4, out=out).said == ""
    assert np.isnan(out).tolist() == [True] * 4


def test_what_files_from_elsewhere_include_and_assume_is_known(kernels):
    assert kernels.right("assumes", block=2, out=blank(2, np.int32), n=3).tolist() == [3, 3]


# ---- barriers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bit", "mask"), [(0, 0), (3, 0), (5, 0), (6, 0), (7, 0), (7, 128)])
def test_barriers_count_and_combine(kernels, bit, mask):
    yes = [(i | mask) >> bit & 1 for i in range(100)]
    found = kernels.right("votes", block=100, out=blank((3, 100), np.int32), bit=bit, mask=mask)
    assert found.tolist() == [[sum(yes)] * 100, [all(yes)] * 100, [any(yes)] * 100]


@pytest.mark.parametrize("stay", [1, 31, 32, 33, 64])
def test_a_thread_may_end_before_a_barrier(kernels, stay):
    found = kernels.right("some_leave", block=64, out=blank(stay, np.int32), stay=stay)
    assert found.tolist() == [(i + 1) % stay + 100 * stay for i in range(stay)]


@pytest.mark.parametrize("block", [1, 50, 64])
def test_many_barriers(kernels, block):
    found = kernels.right("many_barriers", block=block, out=blank(block, np.int32))
    assert found.tolist() == [(i + 40) % block for i in range(block)]


# ---- the rest of the language ----------------------------------------------------------------------------------------


def test_constants_and_globals(kernels):
    found = kernels.right("globals", block=8, out=blank(8))
    assert found.tolist() == [t * 0.5 + 3 + 20 + 5 for t in (8, 4, 2, 1)] * 2


def test_the_last_block_may_read_what_all_have_published(kernels):
    x = np.arange(1000, dtype=np.float32)
    total, partial = kernels.right("last_block", grid=7, block=32, out_sum=blank(1), out_partial=blank(7), x=x, n=1000)
    assert total[0] == partial.sum() == x.sum()


@pytest.mark.parametrize("n", [4, 128, 129, 1000])
def test_copies_in_the_background(kernels, n):
    x = np.random.default_rng(n).random(n, dtype=np.float32)
    found = kernels.right("pipelined", block=32, out=blank(n), x=x, n=n)
    assert found.tolist() == (x + np.arange(n) // 128 % 2).astype(np.float32).tolist()


def test_a_kernel_may_print_and_assert(kernels, capfd):
    for mode in (FAST, CHECK):
        assert kernels.run("speaks", grid=2, block=2, n=7, mode=mode).said == ""
        failed = kernels.run("speaks", grid=2, block=2, n=8, mode=mode)
        assert failed.trouble is Trouble.TRAP
        wanted = 'assertion failed: n == 7 && "seven, please" by thread 0 of block 0 (<asserted>)'
        assert failed.said == kernels.placed(wanted)
    FLUSH(None)
    said = capfd.readouterr().out
    assert said.count("block 0 of 2: 3.5 words\n") == said.count("block 1 of 2: 3.5 words\n") == 2


# ---- orders ----------------------------------------------------------------------------------------------------------


def order_of(kernels, order, seed):
    out = blank(384, np.int32)
    assert kernels.run("recorded", block=96, order=order, seed=seed, out=out).said == ""
    assert sorted(out.tolist()) == sorted([*range(96)] * 4)
    return tuple(out.tolist())


def test_orders_differ_and_a_seed_gives_the_same_one_again(kernels):
    found = {order: order_of(kernels, order, 1) for order in ORDERS}
    assert len(set(found.values())) == len(ORDERS)
    assert {order: order_of(kernels, order, 1) for order in ORDERS} == found
    drawn = {order for order in ORDERS if order_of(kernels, order, 2) != found[order]}
    assert drawn == {"shuffle", "random", "rotate", "starve"}


def test_what_the_orders_are(kernels):
    forwards, backwards = order_of(kernels, "identity", 1), order_of(kernels, "reverse", 1)
    assert forwards[:65] == (*range(32), 31, *range(32, 64)), "the last one to arrive goes on at once"
    assert backwards[:32] == (*range(95, 63, -1),)
    for seed in range(5):
        starved = order_of(kernels, "starve", seed)
        assert len({t // 32 for t in starved[:64]}) == 1, "one warp as far as the barrier"
        shuffled = order_of(kernels, "shuffle", seed)
        assert len({t // 32 for t in shuffled[:3]}) == 3, "one lane of each warp in turn"
        rotated = order_of(kernels, "rotate", seed)
        assert [len({t // 32 for t in rotated[i : i + 32]}) for i in (0, 32, 64)] == [1, 1, 1], "warp by warp"


@pytest.mark.parametrize("late", [-1, 0, 27, 70])
def test_threads_that_do_not_wait_take_their_turns_as_those_that_do(kernels, late):
    """In fast mode they run in a row, until one has to wait; in check mode each is given its turn."""

    def words(order, block, mode):
        out = blank(2 * block, np.int32)
        assert not kernels.run("says_two_words", block=block, seed=3, order=order, mode=mode, out=out, late=late).said
        return out.tolist()

    for order in ORDERS:
        for block in (1, 33, 64, 100):
            assert words(order, block, FAST) == words(order, block, CHECK), (order, block)
    waits = [late] if late >= 0 else []
    spoken = [word for i in range(100) for word in ([i] if i == late else [i, ~i])]
    assert words("identity", 100, FAST) == [*spoken, *(~i for i in waits)]


def test_blocks_have_no_order_but_every_one_runs_once(kernels):
    seen = set()
    for order in ORDERS:
        for seed in range(6):
            out = blank(7, np.int32)
            assert kernels.run("recorded_blocks", grid=7, block=1, order=order, seed=seed, out=out).said == ""
            assert sorted(out.tolist()) == [*range(7)]
            seen.add(tuple(out.tolist()))
    assert {(*range(7),), (*range(6, -1, -1),)} < seen
    assert len(seen) > 4
