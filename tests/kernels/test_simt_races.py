"""Check mode: accesses that nothing orders. Each kernel is right as it stands; `gone` is a barrier that is left out."""

import numpy as np
import pytest
from _simt import CHECK, FAST, Kernels, aligned, blank

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt.emulator import ORDERS, Trouble

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#define ME (int)threadIdx.x
#define I (int)(blockIdx.x * blockDim.x + threadIdx.x)
#define BARRIER(n) if (gone != n) __syncthreads()
#define SYNCWARP(n) if (gone != n) __syncwarp()

// ---- barriers of a block ----
template <int gone>
__global__ void product(float* out, const float* x, int n) {
  __shared__ float as[8][8], bs[8][8];
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 8) {
    as[threadIdx.y][threadIdx.x] = x[row * n + k + threadIdx.x];  // fetched
    bs[threadIdx.y][threadIdx.x] = x[(k + threadIdx.y) * n + col];
    BARRIER(1);
    for (int i = 0; i < 8; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];  // used
    BARRIER(2);
  }
  out[row * n + col] = sum;
}
template <int gone>
__global__ void block_sum(float* out, const float* x, int n) {
  __shared__ float s[128];
  s[ME] = 0;
  for (int i = ME; i < n; i += 128) s[ME] += x[i];
  BARRIER(1);
  for (int by = 64; by; by /= 2) {
    if (ME < by) s[ME] += s[ME + by];
    BARRIER(2);
  }
  for (int i = ME; i < n; i += 128) out[i] = x[i] + s[0];
}
template <int gone>
__global__ void sum_of_warps(float* out, const float* x, int n) {
  extern __shared__ float of_warps[];
  for (int row = 0; row < 2; ++row) {
    float v = x[row * 128 + ME];
    for (int by = 16; by; by /= 2) v += __shfl_xor_sync(~0u, v, by);
    if (ME % 32 == 0) of_warps[ME / 32] = v;  // of a warp
    BARRIER(1);
    float sum = 0;
    for (int w = 0; w < 4; ++w) sum += of_warps[w];  // of all warps
    out[row * 128 + ME] = sum;
    BARRIER(2);
  }
}
template <int gone>
__global__ void two_buffers(float* out, const float* x, int n) {
  __shared__ float tile[2][128];
  tile[0][ME] = x[ME];
  for (int t = 0; t * 128 < n; ++t) {
    BARRIER(1);
    if ((t + 1) * 128 < n) tile[(t + 1) % 2][ME] = x[(t + 1) * 128 + ME];
    out[t * 128 + ME] = tile[t % 2][127 - ME];
  }
}
template <int gone>
__global__ void histogram(float* out, const float* x, int n) {
  __shared__ int bins[128];
  bins[ME] = 0;
  BARRIER(1);
  for (int i = ME; i < n; i += 128) atomicAdd(&bins[(int)x[i]], 1);  // counts
  BARRIER(2);
  out[ME] = bins[127 - ME];  // counted
  out[128 + ME] = 0;
}
template <int gone>
__global__ void flag(float* out, const float* x, int n) {
  __shared__ int found;
  if (ME == 0) found = 0;
  BARRIER(1);
  for (int i = ME; i < n; i += 128) if (x[i] > 5) atomicExch(&found, 1);
  BARRIER(2);
  out[ME] = out[128 + ME] = found;
}
template <int gone>
__global__ void renewed(float* out, const float* x, int n) {
  __shared__ float first;
  if (ME == 0) first = x[1];
  __syncthreads();
  out[ME] = first;  // by all
  BARRIER(1);
  if (ME == 127) first = x[2];  // by the last reader
  __syncthreads();
  out[128 + ME] = first;
}

// ---- lanes of a warp ----
template <int gone>
__global__ void lanes(float* out, const float* x, int n) {
  __shared__ float s[128];
  int lane = ME % 32;
  s[ME] = x[ME];
  SYNCWARP(1);
  for (int by = 16; by; by /= 2) {
    if (lane < by) s[ME] += s[ME + by];
    SYNCWARP(2);
  }
  out[ME] = out[128 + ME] = s[ME - lane];
}
template <int gone>
__global__ void lanes_volatile(float* out, const float* x, int n) {
  __shared__ volatile float s[128];
  s[ME] = x[ME];
  SYNCWARP(1);
  out[ME] = s[ME ^ 1];
  SYNCWARP(2);
  s[ME] = 2;
  SYNCWARP(3);
  out[128 + ME] = s[ME ^ 3];
}

// ---- the grid ----
template <int gone>
__global__ void between_blocks(float* out, const float* x, int n) {
  int more = gone && blockIdx.x + 1 < gridDim.x;
  for (int i = ME; i < 128 + more; i += 128) out[blockIdx.x * 128 + i] = x[i] + blockIdx.x;  // an element
}
template <int gone>
__global__ void accumulated(float* out, const float* x, int n) {
  out[I] = 0;
  __syncthreads();
  if (gone == 1) out[blockIdx.x * blockDim.x] += x[I];  // accumulates
  if (gone == 0) atomicAdd(&out[blockIdx.x * blockDim.x], x[I]);
  if (gone == 2 && blockIdx.x == 1) out[0] += x[I];
}
template <int gone>
__global__ void neighbour(float* out, const float* x, int n) {
  out[I] = x[I];  // own
  if (gone == 1) out[I] += out[I ? I - 1 : n - 1];
  if (gone == 2 && ME == 0 && blockIdx.x) out[I] += out[I - 1];  // across
}
__device__ unsigned finished = 0, done = 0;
template <int gone>
__global__ void last_block(float* out, const float* x, int n) {
  __shared__ bool last;
  out[2 + I] = x[I];  // its part
  BARRIER(1);
  if (ME == 0) {
    if (gone != 2) __threadfence();
    last = gone == 3 ? ++done % gridDim.x == 0 : atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && ME == 0) {
    out[0] = 0;
    for (int i = 0; i < n; ++i) out[0] += out[2 + i];  // adds up
    out[1] = 1;
  }
}

// ---- what is no race ----
__global__ void bytes(unsigned char* out, const float* x, int n) { out[I] = I % 2 ? I : out[I] = 3; }
__global__ void halves(__half* out, const float* x, int n) {
  __shared__ __half s[128];
  s[ME] = x[ME];
  s[ME] += __half(1.0f);
  out[I] = s[ME];
}
__global__ void pairs_and_singles(float* out, const float* x, int n) {
  if (I % 2 == 0 && I + 1 < n) *reinterpret_cast<float2*>(out + I) = make_float2(x[I], x[I + 1]);
}
__global__ void polled(float* out, const float* x, int n) {
  __shared__ int ready;
  if (ME == 0) ready = 0;
  __syncthreads();
  if (ME == 127) out[I] = x[I], __threadfence_block(), atomicExch(&ready, 1);
  while (*(volatile int*)&ready == 0) __nanosleep(10);
  if (ME != 127) out[I] = 1;
}
__global__ void same_value(float* out, const float* x, int n) {
  __shared__ int any;
  if (ME == 0) any = 0;
  __syncthreads();
  if (x[I] >= 0) any = 1;  // all the same
  __syncthreads();
  out[I] = any;
}
__global__ void same_value_of_blocks(float* out, const float* x, int n) {
  out[0] = n;  // all blocks the same
  if (I) out[I] = x[I];
}
"""
RACE, UNINITIALIZED = Trouble.RACE, Trouble.UNINITIALIZED
GONE = {
    "product": 2,
    "block_sum": 2,
    "sum_of_warps": 2,
    "two_buffers": 1,
    "histogram": 2,
    "flag": 2,
    "renewed": 1,
    "lanes": 2,
    "lanes_volatile": 3,
    "between_blocks": 1,
    "accumulated": 2,
    "neighbour": 2,
    "last_block": 3,
}
"""How many things can be left out of each."""
HARMLESS = ("bytes", "halves", "pairs_and_singles", "polled")
DTYPES = {"bytes": np.uint8, "halves": np.float16}
MISSING = [(name, gone) for name, most in GONE.items() for gone in range(1, most + 1)]


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    instances = [f"{name}<{gone}>" for name, most in GONE.items() for gone in range(most + 1)]
    return Kernels(tmp_path_factory.mktemp("races"), SOURCE, *instances)


def run(kernels, entry, mode, order, *, seed=1):
    """What came of it, and the output."""
    n, how = 256, {"grid": 2, "block": 128}
    if entry.startswith("product"):
        n, how = 16, {"grid": (2, 2), "block": (8, 8)}
    elif entry.partition("<")[0] in {
        "block_sum",
        "sum_of_warps",
        "two_buffers",
        "histogram",
        "flag",
        "renewed",
        "lanes",
        "lanes_volatile",
    }:
        how = {"grid": 1, "block": 128, "shared": 16}
    x, out = aligned((np.arange(256) % 7).astype(np.float32)), aligned(blank(258, DTYPES.get(entry, np.float32)))
    ran = kernels.run(entry, **how, mode=mode, order=order, seed=seed, out=out, x=x, n=n)
    return ran, out.astype(np.float64)


@pytest.mark.parametrize("entry", [*(f"{name}<0>" for name in GONE), *HARMLESS])
def test_what_is_right_gives_no_alarm_and_the_same_in_every_order(kernels, entry):
    found = []
    for mode in (FAST, CHECK):
        for order in ORDERS:
            ran, out = run(kernels, entry, mode, order, seed=len(found))
            assert not ran.said + ran.warned, f"{mode}, {order}"
            found.append(out)
    assert not np.isnan(found[0][:256]).any() or entry == "product<0>"
    for out in found:
        np.testing.assert_array_equal(out, found[0])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("name", "gone"), MISSING)
def test_what_is_missing_is_seen_in_every_order(kernels, name, gone, order):
    """Whichever comes first: an access that nothing orders, or a read of what will only be written."""
    for seed in (1, 2):
        ran, _ = run(kernels, f"{name}<{gone}>", CHECK, order, seed=seed)
        assert ran.trouble in {RACE, UNINITIALIZED}
        assert ran.scene.fault(ran.outcome.fault).kind in {Kind.RACE, Kind.UNINITIALIZED}
    # A counter that is not atomic is left as it is where a launch ends: then the last block comes too early.
    if (name, gone) not in {("histogram", 1), ("neighbour", 2), ("last_block", 3)}:
        assert ran.trouble is RACE


UNINTERRUPTED = {("accumulated", 1), ("neighbour", 1), ("between_blocks", 1)}
"""Without check mode nobody runs between a thread's read and its write, and blocks run one after the other."""


@pytest.mark.parametrize(("name", "gone"), [m for m in MISSING if m not in UNINTERRUPTED and m[0] != "last_block"])
def test_some_order_gives_another_result_without_check_mode(kernels, name, gone):
    _, right = run(kernels, f"{name}<0>", FAST, "identity")
    found = [run(kernels, f"{name}<{gone}>", FAST, order, seed=seed)[1] for order in ORDERS for seed in range(4)]
    assert any(not np.array_equal(out, right, equal_nan=True) for out in found)


RACES = {
    "product<1>": (
        "thread (1, 0) of block (0, 0) writes 4 bytes at byte 4 of as (<fetched>)",
        "thread (0, 0) read (<used>)",
    ),
    "product<2>": (
        "thread (1, 0) of block (0, 0) reads 4 bytes at byte 0 of as (<used>)",
        "thread (0, 0) wrote (<fetched>)",
    ),
    "sum_of_warps<1>": (
        "thread 0 of block 0 writes 4 bytes at byte 0 of dynamic shared memory (<of a warp>)",
        "thread 127 read (<of all warps>)",
    ),
    "histogram<2>": (
        "thread 121 of block 0 reads 4 bytes at byte 24 of bins (<counted>)",
        "thread 118 wrote (<counts>)",
    ),
    "renewed<1>": (
        "thread 127 of block 0 writes 4 bytes at byte 0 of first (<by the last reader>)",
        "thread 126 read (<by all>)",
    ),
    "between_blocks<1>": (
        "thread 0 of block 1 writes out[128] (<an element>)",
        "thread 0 of block 0 wrote (<an element>)",
    ),
    "accumulated<1>": ("thread 1 of block 0 reads out[0] (<accumulates>)", "thread 0 wrote (<accumulates>)"),
    "last_block<1>": ("thread 0 of block 1 reads out[3] (<adds up>)", "thread 1 of block 0 wrote (<its part>)"),
    "neighbour<2>": ("thread 0 of block 1 reads out[127] (<across>)", "thread 127 of block 0 wrote (<own>)"),
}


@pytest.mark.parametrize("entry", RACES)
def test_both_sides_of_a_race_are_named(kernels, entry):
    here, there = RACES[entry]
    ran, _ = run(kernels, entry, CHECK, "identity")
    wanted = kernels.placed(f"{here}, which {there}, and nothing orders the two")
    assert (ran.trouble, ran.said) == (RACE, wanted)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("entry", "line"), [("same_value", "all the same"), ("same_value_of_blocks", "all blocks the same")]
)
def test_writes_of_the_same_value_are_doubtful_and_no_fault(kernels, entry, line, order):
    ran, _ = run(kernels, entry, CHECK, order)
    assert ran.said == ""
    assert ran.outcome.warnings > 200
    what = "out[0]" if entry == "same_value_of_blocks" else "4 bytes at byte 0 of any"
    here = kernels.placed(f"(<{line}>)")
    assert ran.warned.startswith("thread ")
    assert f" writes {what} {here}, which thread " in ran.warned
    assert ran.warned.endswith(f" wrote {here}, and nothing orders the two")
