"""Check mode: what is read or written outside of tensors and shared arrays, and read before it was written."""

import numpy as np
import pytest
from _simt import CHECK, Kernels, aligned, blank

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Trouble

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#include <cuda_pipeline.h>
#define ME (int)threadIdx.x
#define I (int)(blockIdx.x * blockDim.x + threadIdx.x)
struct Sixteen { float v[16]; };

// ---- tensors ----
__global__ void shifted(float* out, const float* x, int n, int by) {
  if (I < n) out[I] = x[I + by];  // shifted
}
__global__ void one_more(float* out, const float* x, int n, int by) {
  if (I < n + by) out[I] = 2;  // one more
}
__global__ void narrow(__half* out, const __half* x, int n, int by) {
  if (I < n) out[I] = x[I + by];  // narrow
}
__global__ void bytes(unsigned char* out, const unsigned char* x, int n, int by) {
  if (I < n + by) out[I] = 7;  // a byte
}
__global__ void fours(float* out, const float* x, int n, int by) {
  if (4 * I < n) {
    float4 v = reinterpret_cast<const float4*>(x)[I];  // four
    out[I] = v.x + v.y + v.z + v.w;
  }
}
__global__ void straddling(float* out, const float* x, int n, int by) {
  const char* at = reinterpret_cast<const char*>(x + n - 1) + 2;
  if (I == 0) memcpy(out, at, 4);  // straddles
}
__global__ void structs(float* out, const float* x, int n, int by) {
  if (I == 0) *(Sixteen*)out = *(const Sixteen*)(x + n - 16 + by);  // a struct
}
__global__ void copied(float* out, const float* x, int n, int by) {
  if (I == 0) memcpy(out, x, 4 * (n + by));  // a copy
}
__global__ void filled(float* out, const float* x, int n, int by) {
  if (I == 0) memset(out, 0, 4 * (n + by));  // a filling
}
__global__ void counted(unsigned* out, const float* x, int n, int by) {
  if (I == 0) for (int i = 0; i < n; ++i) out[i] = 0;
  __syncthreads();
  if (I == 0) atomicAdd(out + n - 1 + by, 1u);  // an atomic
}
__global__ void input(float* out, float* x, int n, int by) {
  if (I < n) out[I] = x[I];
  if (by && I == n - 1) x[I] = 0;  // into the input
}
__global__ void input_added(float* out, float* x, int n, int by) {
  if (I < n) out[I] = 1;
  if (by && I == 0) atomicAdd(x, 1.0f);  // adds to the input
}
__global__ void unread(float* out, const float* x, int n, int by) {
  if (I < n) out[I] = by ? out[I] + 1 : 1;  // reads its output
}
__global__ void added_to_output(float* out, const float* x, int n, int by) {
  if (!by && I < n) out[I] = 0;
  if (I < n) atomicAdd(out + I, 1.0f);  // adds to what is not there
}

// ---- shared memory ----
__global__ void neighbours(float* out, const float* x, int a, int b) {
  __shared__ float first[10];
  __shared__ float second[6];
  __shared__ double third[3];
  if (ME < 10) first[ME] = ME;
  if (ME < 6) second[ME] = ME;
  if (ME < 3) third[ME] = ME;
  __syncthreads();
  if (ME == 0) first[a] = 1;   // in first
  if (ME == 0) second[b] = 1;  // in second
  __syncthreads();
  if (ME < 6) out[ME] = first[ME] + second[ME] + third[ME % 3];
}
__global__ void moving(float* out, const float* x, int a, int b) {
  extern __shared__ float moved[];
  moved[ME] = ME;
  __syncthreads();
  out[ME] = moved[ME + a];  // moves
}
__global__ void few_bytes(float* out, const float* x, int a, int b) {
  __shared__ char letters[5];
  if (ME < 5) letters[ME] = ME;
  __syncthreads();
  if (ME == 4) out[0] = letters[ME + a];  // a letter
}
__global__ void unwritten_shared(float* out, const float* x, int a, int b) {
  __shared__ float s[33];
  s[ME] = x[ME];
  __syncthreads();
  out[ME] = s[ME + a];  // nobody wrote
}
__global__ void unwritten_dynamic(float* out, const float* x, int a, int b) {
  extern __shared__ float4 quads[];
  float* s = reinterpret_cast<float*>(quads);
  if (ME < 32 - a) s[ME] = x[ME];
  __syncthreads();
  if (ME < 8) out[ME] = quads[ME].x + quads[ME].w;  // all
}
__global__ void second_block(float* out, const float* x, int a, int b) {
  __shared__ float s;
  if (blockIdx.x == 0 && ME == 0) s = 1;
  __syncthreads();
  if (ME == 0) out[blockIdx.x] = blockIdx.x < a ? s : 0;  // what the first block had
}
__global__ void in_background(float* out, const float* x, int a, int b) {
  __shared__ __align__(16) float tile[128];
  __pipeline_memcpy_async(&tile[4 * ME], x + 4 * ME + 4 * a, 16);  // fetches
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[ME] = tile[127 - ME];
}
__global__ void stack(float* out, const float* x, int a, int b) {
  const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float mine[32], *at = mine;
  for (int i = 0; i < 32; ++i) at[(i + a) % 32] = x[i] * table[(i + b) % 8];
  struct { float v; int index; } best[2] = {{at[ME], (int)ME}, {at[0], 0}};
  out[ME] = best[best[0].v < best[1].v].v;
}
"""
B, A = Trouble.OUT_OF_BOUNDS, "thread {} of block {}"
SIZES = (1, 3, 5, 7, 16, 17, 30, 33)


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("bounds"), SOURCE)


def run(kernels, entry, n, by, *, order=ORDERS[0], size=None, **how):
    dtype = {"narrow": np.float16, "bytes": np.uint8, "counted": np.uint32}.get(entry, np.float32)
    x = aligned(np.arange(size or n).astype(dtype))
    how = {"grid": -(-n // 32), "block": 32, **how}
    return kernels.run(entry, **how, mode=CHECK, order=order, out=aligned(blank(size or n, dtype)), x=x, n=n, by=by)


def who(thread, per_block=32):
    return f"thread {thread % per_block} of block {thread // per_block}"


def elements(n):
    return f"{n} element{'s' * (n != 1)}"


@pytest.mark.parametrize("n", SIZES)
def test_one_step_outside_of_a_tensor(kernels, n):
    size, last = elements(n), who(n - 1)
    wanted = {
        ("shifted", 1): f"{last} reads x[{n}] (<shifted>), but it has {size}",
        ("shifted", -1): f"{who(0)} reads x[-1] (<shifted>), but it has {size}",
        ("one_more", 1): f"{who(n)} writes out[{n}] (<one more>), but it has {size}",
        ("narrow", 1): f"{last} reads x[{n}] (<narrow>), but it has {size}",
        ("narrow", -1): f"{who(0)} reads x[-1] (<narrow>), but it has {size}",
        ("bytes", 1): f"{who(n)} writes out[{n}] (<a byte>), but it has {size}",
        ("counted", 1): f"{who(0)} writes out[{n}] (<an atomic>), but it has {size}",
    }
    grid = -(-(n + 1) // 32)
    for (entry, by), words in wanted.items():
        ran = run(kernels, entry, n, by, grid=grid)
        assert (ran.trouble, ran.said) == (B, kernels.placed(words))
        assert ran.scene.fault(ran.outcome.fault).kind is Kind.OUT_OF_BOUNDS
        assert run(kernels, entry, n, 0, grid=grid).said == ""


@pytest.mark.parametrize("order", ORDERS)
def test_one_step_outside_is_seen_in_every_order(kernels, order):
    for entry, by in (("shifted", 1), ("shifted", -1), ("one_more", 1), ("bytes", 1)):
        assert run(kernels, entry, 70, by, order=order, grid=3).trouble is B


@pytest.mark.parametrize("n", [1, 2, 5, 18, 31])
def test_the_tail_of_a_vector(kernels, n):
    ran = run(kernels, "fours", n, 0)
    assert ran.said == kernels.placed(f"{who(n // 4)} reads x[{n}] (<four>), but it has {elements(n)}")
    assert run(kernels, "fours", n + -n % 4, 0).said == ""


@pytest.mark.parametrize(
    ("entry", "by", "words"),
    [
        ("straddling", 0, "reads x[36], byte 2 of it (<straddles>), but it has 37 elements"),
        ("structs", 1, "reads x[22] and 15 behind it (<a struct>), but it has 37 elements"),
        ("copied", 1, "reads x[0] and 37 behind it (<a copy>), but it has 37 elements"),
        ("filled", 1, "writes out[0] and 37 behind it (<a filling>), but it has 37 elements"),
    ],
)
def test_what_is_accessed_at_once_is_judged_as_a_whole(kernels, entry, by, words):
    ran = run(kernels, entry, 37, by)
    assert (ran.trouble, ran.said) == (B, kernels.placed(f"thread 0 of block 0 {words}"))
    if by:
        assert run(kernels, entry, 37, 0).said == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("input", "thread 4 of block 1 writes x[36] (<into the input>), an input"),
        ("input_added", "thread 0 of block 0 writes x[0] (<adds to the input>), an input"),
    ],
)
def test_nobody_writes_to_an_input(kernels, entry, words):
    ran = run(kernels, entry, 37, 1)
    assert (ran.trouble, ran.said) == (Trouble.READ_ONLY, kernels.placed(words))
    assert ran.scene.fault(ran.outcome.fault).kind is Kind.INPUT_MUTATED
    assert run(kernels, entry, 37, 0).said == ""


@pytest.mark.parametrize(
    ("entry", "words"), [("unread", "reads its output"), ("added_to_output", "adds to what is not there")]
)
def test_an_output_is_undefined_until_it_is_written(kernels, entry, words):
    ran = run(kernels, entry, 37, 1)
    wanted = f"thread 0 of block 0 reads out[0] (<{words}>), which nobody has written"
    assert (ran.trouble, ran.said) == (Trouble.UNINITIALIZED, kernels.placed(wanted))
    assert ran.scene.fault(ran.outcome.fault).kind is Kind.UNINITIALIZED
    assert run(kernels, entry, 37, 0).said == ""


# ---- shared memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (10, 0, "4 bytes at byte 40 of first (<in first>), but it has 40 bytes"),
        (12, 0, "4 bytes at byte 48 of first (<in first>), but it has 40 bytes"),
        (-1, 0, "4 bytes at byte -4 of first (<in first>), but it has 40 bytes"),
        (0, 6, "4 bytes at byte 24 of second (<in second>), but it has 24 bytes"),
        (0, -1, "4 bytes at byte -4 of second (<in second>), but it has 24 bytes"),
    ],
)
def test_one_shared_array_does_not_run_over_into_the_next(kernels, a, b, words):
    ran = run(kernels, "neighbours", a, b, size=32, grid=1)
    assert (ran.trouble, ran.said) == (B, kernels.placed(f"thread 0 of block 0 writes {words}"))
    assert run(kernels, "neighbours", 9, 5, size=32, grid=1).said == ""


@pytest.mark.parametrize(
    ("entry", "a", "shared", "words"),
    [
        (
            "moving",
            1,
            128,
            "thread 31 of block 0 reads 4 bytes at byte 128 of dynamic shared memory (<moves>), but it has 128 bytes",
        ),
        (
            "moving",
            -1,
            128,
            "thread 0 of block 0 reads 4 bytes at byte -4 of dynamic shared memory (<moves>), but it has 128 bytes",
        ),
        ("few_bytes", 1, 0, "thread 4 of block 0 reads 1 byte at byte 5 of letters (<a letter>), but it has 5 bytes"),
        ("few_bytes", -5, 0, "thread 4 of block 0 reads 1 byte at byte -1 of letters (<a letter>), but it has 5 bytes"),
        (
            "in_background",
            1,
            0,
            "thread 31 of block 0 reads x[128] and 3 behind it (<fetches>), but it has 128 elements",
        ),
    ],
)
def test_one_step_outside_of_shared_memory(kernels, entry, a, shared, words):
    ran = run(kernels, entry, a, 0, size=128, grid=1, shared=shared)
    assert (ran.trouble, ran.said) == (B, kernels.placed(words))
    assert run(kernels, entry, 0, 0, size=128, grid=1, shared=shared).said == ""


@pytest.mark.parametrize(
    ("entry", "a", "words"),
    [
        (
            "unwritten_shared",
            1,
            "thread 31 of block 0 reads 4 bytes at byte 128 of s (<nobody wrote>), which nobody has written",
        ),
        (
            "unwritten_dynamic",
            1,
            "thread 7 of block 0 reads 4 bytes at byte 124 of dynamic shared memory (<all>), which nobody has written",
        ),
        (
            "second_block",
            2,
            "thread 0 of block 1 reads 4 bytes at byte 0 of s (<what the first block had>), which nobody has written",
        ),
    ],
)
def test_shared_memory_is_undefined_until_it_is_written(kernels, entry, a, words):
    ran = run(kernels, entry, a, 0, size=32, grid=2, shared=128)
    assert (ran.trouble, ran.said) == (Trouble.UNINITIALIZED, kernels.placed(words))
    assert run(kernels, entry, entry == "second_block", 0, size=32, grid=2, shared=128).said == ""


@pytest.mark.parametrize("order", ORDERS)
def test_local_arrays_and_tables_are_nobodys_business(kernels, order):
    assert run(kernels, "stack", 5, 3, size=32, grid=2, order=order).said == ""
