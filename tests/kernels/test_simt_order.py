"""Memory order: blocks that wait for one another, scopes and fences, and what else of memory check mode judges."""

import numpy as np
import pytest
from _simt import CHECK, FAST, ORDERS, Kernels, aligned, blank

from kernel_assay.kernels.backends.simt.emulator import Trouble
from kernel_assay.kernels.backends.simt.variables import constants

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_pipeline_primitives.h>
namespace cg = cooperative_groups;
#define ME (int)threadIdx.x
#define BLOCK (int)blockIdx.x
#define I (int)(blockIdx.x * blockDim.x + threadIdx.x)

// ---- blocks that wait for others ----
__device__ unsigned turns, opened[64];
__device__ int held;
__global__ void chain(int* out, int backwards) {  // by a volatile flag
  int blocks = gridDim.x, before = backwards ? BLOCK + 1 : BLOCK - 1;
  volatile unsigned* flag = opened;
  __shared__ int sum;
  if (ME == 0) {
    sum = 0;
    if (0 <= before && before < blocks) {
      while (!flag[before]);
      __threadfence();
      sum = out[before];
    }
  }
  __syncthreads();
  atomicAdd(&sum, 1);
  __syncthreads();
  if (ME == 0) {
    out[BLOCK] = sum;
    __threadfence();
    flag[BLOCK] = 1;
  }
}
__global__ void closed() { opened[I] = 0; }
__global__ void in_turn(int* out) {  // by cuda::atomic
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> turn(turns);
  if (ME == 0) {
    while (turn.load(cuda::memory_order_acquire) % gridDim.x != (BLOCK * 5 + 3) % gridDim.x);
    out[BLOCK] = ++held % gridDim.x;
    turn.fetch_add(1, cuda::memory_order_release);
  }
}
__global__ void rounds(int* out) {
  __shared__ int mine[32];
  auto grid = cg::this_grid();
  mine[ME] = I;
  for (int round = 0; round < 3; ++round) {
    out[I] = mine[ME];
    grid.sync();
    mine[ME] = out[(I + 32) % grid.size()] + 1;
    grid.sync();  // the second
  }
  out[I] = mine[ME];
}
__global__ void half_of_it(int* out) {
  if (ME < 16) __syncthreads();  // half
  else cg::this_grid().sync();
}

// ---- variables of the device, and every way to write ----
struct Three { int a, b, c; };
__constant__ int table[4] = {1, 2, 3, 4};
__constant__ Three few[2], more;
__device__ int counts[4];
__device__ Three threes[4];
__global__ void changes_a_constant(int* out) { const_cast<int*>(table)[1] = out[0] = 1; }  // changed
__global__ void behind_a_variable(int* out, int n) { out[0] = *(counts + n); }  // behind
__global__ void plain_counter(int* out) { out[I] = counts[1]++; }  // counted
__global__ void by_assignment(int* out) { threes[1] = Three{I, 2, 3}; }  // assigned
__global__ void by_memcpy(int* out, int n) { memcpy(out + 1, table, n); }  // by memcpy
__global__ void by_builtin(int* out) { __builtin_memcpy(out + 1, table, 7); out[0] = I; }
__global__ void by_memset(int* out, int n) { memset(out, BLOCK, n); }  // by memset
__global__ void by_pointer(int* out) { auto* at = (char*)out; at[2] = I; at[2] = I + 1; }  // twice
__global__ void nobody_reads(int* out) {
  __shared__ int s[2];
  s[ME / 32] = ME;  // for nobody
  out[I] = 1;
}
__global__ void inlined_atomics(int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_block> narrow(counts[0]);
  narrow.fetch_max(I);  // narrow
}
__global__ void background(int* out, const int* x) {
  __shared__ int s[32];
  __pipeline_memcpy_async(s + ME, x + ME, 4);  // sent
  __pipeline_commit();
  out[ME] = s[ME];  // too early
}

// ---- what an atomic operation has read ----
__device__ unsigned tickets;
__global__ void last_resets(int* out) {  // as NVIDIA's own samples do, without a fence before it
  __shared__ bool last;
  if (ME == 0) last = atomicInc(&tickets, gridDim.x) == gridDim.x - 1;
  __syncthreads();
  if (ME == 1 && last) out[0] = tickets, tickets = 0;
}
__global__ void second_resets(int* out) {
  if (ME == 0 && atomicAdd(&tickets, 1) == 1) tickets = 0;  // early
}
__global__ void stored_first(int* out) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> sum;
  if (ME == 0) sum.store(0, cuda::memory_order_relaxed);
  __syncthreads();
  sum += ME;
  __syncthreads();
  out[ME] = sum;
}
__global__ void never_stored(int* out) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> sum;
  sum += ME;  // never stored
  out[ME] = 0;
}
"""


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("order"), SOURCE)


def each(mode):
    return [(mode, order, seed) for order in ORDERS for seed in range(2)]


@pytest.mark.parametrize("mode", [FAST, CHECK])
@pytest.mark.parametrize("backwards", [0, 1])
def test_a_block_may_wait_for_an_earlier_one_or_for_a_later_one(kernels, mode, backwards):
    for mode_, order, seed in each(mode):
        kernels.run("closed", block=64)
        ran = kernels.run(
            "chain", grid=40, mode=mode_, order=order, seed=seed, out=(out := blank(40, np.int32)), n=backwards
        )
        # The flags of check mode lie in a library of its own.
        kernels.run("closed", block=64, mode=CHECK)
        assert (ran.said, ran.warned) == ("", "")
        assert out.tolist() == [32 * (40 - i if backwards else i + 1) for i in range(40)]


def test_blocks_take_turns_by_an_atomic_variable(kernels):
    out = kernels.right("in_turn", grid=16, out=blank(16, np.int32))
    assert out.tolist() == [(5 * i + 4) % 16 for i in range(16)]


def test_a_barrier_of_the_whole_grid_keeps_shared_memory_apart(kernels):
    out = kernels.right("rounds", grid=24, out=blank(24 * 32, np.int32))
    assert out.tolist() == [(i + 3 * 32) % (24 * 32) + 3 for i in range(24 * 32)]


def test_a_grid_that_does_not_fit_onto_the_device_cannot_meet(kernels):
    for blocks, threads, most in ((17, 1024, 16), (257, 64, 256)):
        ran = kernels.run("rounds", grid=blocks, block=min(threads, 1024), out=blank(blocks * threads, np.int32))
        assert ran.trouble is Trouble.DEADLOCK
        assert f"reached by {blocks} blocks, of which the emulated device holds {most}" in ran.said


def test_two_barriers_at_once_are_a_deadlock(kernels):
    ran = kernels.run("half_of_it", grid=2, out=blank(1, np.int32))
    assert ran.trouble in {Trouble.DEADLOCK, Trouble.DIVERGENT_BARRIER}


SAID = {
    "changes_a_constant": "writes 4 bytes at byte 4 of table (<changed>), a constant",
    "behind_a_variable": "reads 4 bytes at byte 16 of counts (<behind>), but it has 16 bytes",
    "plain_counter": "of counts (<counted>), which thread ",
    "by_assignment": "writes 12 bytes at byte 12 of threes (<assigned>), which thread ",
    "by_memcpy": "reads 20 bytes at byte 0 of table (<by memcpy>), but it has 16 bytes",
    "by_memset": "writes out[0] and 9 behind it (<by memset>), which thread ",
    "by_pointer": "writes out[0], byte 2 of it (<twice>), which thread ",
    "nobody_reads": "of s (<for nobody>), which thread ",
    "inlined_atomics": "of counts (<narrow>), which thread ",
    "background": "reads 4 bytes at byte 0 of s (<too early>), which thread 0 wrote in the background (<sent>)",
}
ARGUMENTS = {"behind_a_variable": {"n": 4}, "by_memcpy": {"n": 20}, "by_memset": {"n": 40}}


@pytest.mark.parametrize("entry", SAID)
def test_every_way_to_touch_memory_is_judged(kernels, entry):
    given = ARGUMENTS.get(entry, {})
    if entry == "background":
        given = {"x": aligned(np.arange(64, dtype=np.int32))}
    out = aligned(blank(128, np.int32))
    ran = kernels.run(
        entry,
        grid=2,
        block=1 if entry == "by_memset" else 64 if entry == "nobody_reads" else 32,
        mode=CHECK,
        out=out,
        **given,
    )
    assert kernels.placed(SAID[entry]) in ran.said


def test_who_has_read_all_the_others_atomically_is_behind_them(kernels):
    assert kernels.right("last_resets", grid=6, out=blank(1, np.int32)).tolist() == [6]
    ran = kernels.run("second_resets", grid=4, mode=CHECK, out=blank(1, np.int32))
    assert kernels.placed("tickets (<early>), which thread 0 of block 1 wrote (<early>)") in ran.said


def test_an_atomic_store_reads_nothing(kernels):
    assert kernels.right("stored_first", out=blank(32, np.int32)).tolist() == [496] * 32
    ran = kernels.run("never_stored", mode=CHECK, out=blank(32, np.int32))
    assert kernels.placed("of sum (<never stored>), which nobody has written") in ran.said


def test_a_builtin_of_an_odd_size_is_judged_where_it_overlaps(kernels):
    ran = kernels.run("by_builtin", block=32, mode=CHECK, out=aligned(blank(8, np.int32)))
    assert ran.trouble is Trouble.RACE  # of out[0]; all copy the same
    assert "writes out[0] (" in ran.said
    assert ran.outcome.warnings


def test_names_of_constants_are_found_in_the_source():
    text = (
        "__constant__ int a, b[2]; static __constant__ float c[3][4] = {{1}}; __constant__ struct { int x; } d = {1};"
    )
    assert constants([text, "float __constant__ e[4];"]) == {"a", "b", "c", "d", "e"}
    assert constants(["__device__ int f;"]) == set()
