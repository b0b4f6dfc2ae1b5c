"""What ends a launch: each fault with its kind, who did it, and where; the next launch knows nothing of it."""

import re

import numpy as np
import pytest
from _simt import CHECK, FAST, Kernels, aligned, blank

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Trouble

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <mma.h>
#define ME threadIdx.x
#define ALL 0xffffffffu

// ---- barriers ----
__global__ void two_barriers(float* out, const float* x, int n) {
  if (ME % 2) {
    __syncthreads();  // odd
  } else {
    __syncthreads();  // even
  }
}
__global__ void barrier_and_shuffle(float* out, const float* x, int n) {
  float v = x[ME];
  if (ME == 5) {
    __syncthreads();  // only 5
  } else {
    v = __shfl_xor_sync(ALL, v, 1);  // waits for 5
  }
  out[ME] = v;
}
__global__ void different_operations(float* out, const float* x, int n) {
  if (ME < 16) out[ME] = __ballot_sync(ALL, 1);  // vote
  else out[ME] = __any_sync(ALL, 1);             // ask
}
__global__ void tile_and_block(float* out, const float* x, int n) {
  auto block = cooperative_groups::this_thread_block();
  auto tile = cooperative_groups::tiled_partition<8>(block);
  if (ME < 4) block.sync();  // a few
  else tile.sync();          // the rest
}

__global__ void half_elsewhere(float* out, const float* x, int n) {
  if (ME < 16) {
    __syncthreads();  // 16
    out[ME] = x[ME];
  }
  __syncthreads();  // all
}
__global__ void warp_elsewhere(float* out, const float* x, int n) {
  if (ME >= 32) __syncthreads();  // second
  __syncthreads();  // both
}

// ---- masks ----
__global__ void not_in_mask(float* out, const float* x, int n) {
  out[ME] = __shfl_sync(0xfffffffeu, x[ME], 1);  // without lane 0
}
__global__ void different_masks(float* out, const float* x, int n) {
  unsigned mask = ME < 8 ? ALL : 0x7fffffffu | 1u << ME;
  __syncwarp(mask);  // masks
}
__global__ void odd_width(float* out, const float* x, int n) {
  out[ME] = __shfl_sync(ALL, x[ME], 0, 12);  // of twelve
}

// ---- memory, and the processor ----
__device__ __noinline__ int deep(int n, volatile int* at) {
  volatile char local[512];
  local[n % 512] = n;
  return n ? deep(n - 1, at) + local[(n + 1) % 512] : *at;  // deeper
}
__global__ void recursion(float* out, const float* x, int n) {
  int zero = 0;
  if (ME == 3) out[ME] = deep(n, &zero);
}
__global__ void null_pointer(float* out, const float* x, int n) {
  const float* nothing = x;
  if (n == 7) nothing = nullptr;
  if (ME == 9) out[ME] = nothing[ME];  // reads null
}
__global__ void wild_pointer(float* out, const float* x, int n) {
  if (ME == 9) out[(1ull << 40) + n] = 1;  // writes far away
}
__global__ void division(float* out, const float* x, int n) {
  if (ME == 2) out[ME] = 100 / (n - 7);  // divides
}
__global__ void remainder_of(float* out, const float* x, int n) {
  if (ME == 2) out[ME] = 100 % (n - 7);  // remainder
}
__device__ __noinline__ float of_array(volatile float* outer, int n) {
  volatile float inner[9000];  // 36 KB, of which only the far end is written
  inner[n] = outer[n];
  return inner[n];
}
__global__ void large_arrays(float* out, const float* x, int n) {
  volatile float outer[9000];
  outer[n] = n;
  __syncwarp();
  out[ME] = of_array(outer, n);
}
__global__ void trap(float* out, const float* x, int n) {
  if (ME == 31 && blockIdx.x == 1) __trap();  // trapped
}
__device__ void must(bool yes) {
  assert(yes);  // asserted
}
__global__ void assertion(float* out, const float* x, int n) { must(ME < 6); }
__global__ void whole_grid(float* out, const float* x, int n) {
  if (blockIdx.x) cooperative_groups::this_grid().sync();  // the grid
}
__global__ void copied(float* out, const float* x, int n) {
  __shared__ float s[36];
  __pipeline_memcpy_async(s + ME, x + ME + 1, 16);  // copied crooked
}
__global__ void crooked_tile(float* out, const float* x, int n) {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 8, 8, 4, double> f;
  nvcuda::wmma::fill_fragment(f, 0.0);
  auto at = (double*)(out + 4);
  nvcuda::wmma::store_matrix_sync(at, f, 8, nvcuda::wmma::mem_row_major);  // crooked
}

// ---- only in check mode ----
__global__ void vectors(float* out, const float* x, int n) {
  float4 v = reinterpret_cast<const float4*>(x + n - 7)[ME];  // four at once
  out[ME] = v.x + v.w;
}
__global__ void pairs(float* out, const float* x, int n) {
  out[ME] = *reinterpret_cast<const double*>(x + n - 6);  // a double
}

__global__ void __launch_bounds__(31) bounded(float* out, const float* x, int n) { out[ME] = 1; }
__global__ void __launch_bounds__(32) right(float* out, const float* x, int n) {
  __shared__ float s[32];
  s[ME] = x[ME];
  __syncthreads();
  out[ME] = s[ME ^ 1];
}
"""
T, DIVERGENT, CRASHED = Trouble, Kind.DIVERGENT, Kind.CRASHED
FAULTS = {
    "two_barriers": (
        T.DIVERGENT_BARRIER,
        "divergent barrier: thread 1 of block 0 is here, while 1 other waits at the barrier of <even> (<odd>)",
    ),
    "barrier_and_shuffle": (
        T.DEADLOCK,
        "deadlock in block 0: 31 threads wait here for lane 5, and 1 at the barrier of <only 5> (<waits for 5>)",
    ),
    "tile_and_block": (
        T.DEADLOCK,
        "deadlock in block 0: 4 threads wait here for lane 0, and 4 at the barrier of <a few> (<the rest>)",
    ),
    "different_operations": (
        T.BAD_MASK,
        "__any_sync here, while lane 0 of the same warp is at __ballot_sync of <vote>, by thread 31 of block 0 (<ask>)",
    ),
    "half_elsewhere": (
        T.DIVERGENT_BARRIER,
        "divergent barrier: thread 16 of block 0 is here, while 16 others wait at the barrier of <16> (<all>)",
    ),
    "warp_elsewhere": (
        T.DIVERGENT_BARRIER,
        "divergent barrier: thread 32 of block 0 is here, while 32 others wait at the barrier of <both> (<second>)",
    ),
    "not_in_mask": (
        T.BAD_MASK,
        "__shfl_sync by lane 0, which is not in its own mask 0xfffffffe, by thread 0 of block 0 (<without lane 0>)",
    ),
    "different_masks": (
        T.BAD_MASK,
        "__syncwarp with the mask 0xffffffff, while lane 8 of it says 0x7fffffff, by thread 0 of block 0 (<masks>)",
    ),
    "odd_width": (
        T.BAD_MASK,
        "the width of a shuffle must be 1, 2, 4, 8, 16 or 32, by thread 0 of block 0 (<of twelve>)",
    ),
    "division": (T.ARITHMETIC, "division of an integer by zero by thread 2 of block 0 (<divides>)"),
    "remainder_of": (T.ARITHMETIC, "division of an integer by zero by thread 2 of block 0 (<remainder>)"),
    "trap": (T.TRAP, "__trap() by thread 31 of block 1 (<trapped>)"),
    "assertion": (T.TRAP, "assertion failed: yes by thread 6 of block 0 (<asserted>)"),
    "bounded": (T.LAUNCH_BOUNDS, "the launch fails: a block of 32 threads, but its __launch_bounds__ allow 31"),
    "whole_grid": (
        T.DEADLOCK,
        (
            "deadlock in block 1: 1 of 2 blocks came to this barrier of the whole grid, and the others have ended"
            " (<the grid>)"
        ),
    ),
    "copied": (
        T.MISALIGNED,
        "misaligned address of a copy to shared memory by thread 0 of block 0 (<copied crooked>)",
    ),
    "crooked_tile": (
        T.MISALIGNED,
        "misaligned address of a tile, which must be a multiple of 32 bytes, by thread 31 of block 0 (<crooked>)",
    ),
}
"""What is said in both modes; <words> stand for the line that ends with them."""
KINDS = dict.fromkeys((T.DIVERGENT_BARRIER, T.DEADLOCK, T.BAD_MASK), DIVERGENT)


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("faults"), SOURCE)


def run(kernels, entry, *, n=7, **how):
    x, out = aligned(np.arange(200, dtype=np.float32)), aligned(blank(200))
    ran = kernels.run(entry, grid=2, block=64 if entry == "warp_elsewhere" else 32, **how, out=out, x=x, n=n)
    again = kernels.run("right", grid=2, block=32, **how, out=out, x=x, n=n)
    assert again.said == ""
    assert out[:32].tolist() == [i ^ 1 for i in range(32)]
    return ran


@pytest.mark.parametrize("mode", [FAST, CHECK])
@pytest.mark.parametrize("entry", FAULTS)
def test_a_fault_is_named_with_its_thread_and_line(kernels, entry, mode):
    trouble, words = FAULTS[entry]
    ran = run(kernels, entry, mode=mode)
    assert (ran.trouble, ran.said) == (trouble, kernels.placed(words))
    assert ran.scene.fault(ran.outcome.fault).kind is KINDS.get(trouble, CRASHED)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("entry", FAULTS)
def test_a_fault_is_found_in_every_order(kernels, entry, order):
    assert run(kernels, entry, order=order, seed=3).trouble is FAULTS[entry][0]


@pytest.mark.parametrize("mode", [FAST, CHECK])
def test_stacks_are_as_long_as_they_are(kernels, mode):
    """Also where one function's variables reach over the page that guards the next thread's stack."""
    deep = run(kernels, "recursion", n=4000, mode=mode)
    assert deep.trouble is T.STACK_OVERFLOW
    assert re.fullmatch(
        r"the stack of thread 3 of block 0 overflowed \(kernels\.cu, line \d+\): 64 KB of .*", deep.said
    )
    assert run(kernels, "recursion", n=50, mode=mode).trouble is T.NONE
    large = run(kernels, "large_arrays", mode=mode)
    assert large.said.startswith("the stack of thread 31 of block 0 overflowed (kernels.cu, line ")


@pytest.mark.parametrize(
    ("entry", "fast", "check"),
    [
        (
            "null_pointer",
            "memory fault at 0x24 by thread 9 of block 0 (<reads null>)",
            "thread 9 of block 0 reads 4 bytes far from everything it was given (<reads null>)",
        ),
        (
            "wild_pointer",
            r"memory fault at 0x[0-9a-f]+ by thread 9 of block 0 (<writes far away>)",
            "thread 9 of block 0 writes 4 bytes far from everything it was given (<writes far away>)",
        ),
    ],
)
def test_pointers_that_lead_nowhere(kernels, entry, fast, check):
    for mode, words, trouble in ((FAST, fast, T.MEMORY_FAULT), (CHECK, check, T.OUT_OF_BOUNDS)):
        ran = run(kernels, entry, mode=mode)
        assert ran.trouble is trouble
        assert re.fullmatch(re.sub(r"([()])", r"\\\1", kernels.placed(words)), ran.said)


@pytest.mark.parametrize(("entry", "words"), [("vectors", "four at once"), ("pairs", "a double")])
def test_a_vector_must_be_aligned_as_on_a_gpu(kernels, entry, words):
    """The CPU does not mind, so that only check mode sees it."""
    crooked = {"vectors": 8, "pairs": 7}[entry]
    ran = run(kernels, entry, n=crooked, mode=CHECK)
    assert ran.trouble is T.MISALIGNED
    wanted = kernels.placed(rf"by thread 0 of block 0 (<{words}>)")
    assert re.fullmatch(rf"misaligned address 0x[0-9a-f]+ {re.escape(wanted)}", ran.said)
    assert run(kernels, entry, n=15 - crooked, mode=CHECK).trouble is T.NONE
