"""What the emulator warns of: values that are undefined, and barriers that some threads skip."""

import numpy as np
import pytest
from _simt import CHECK, FAST, ORDERS, Kernels, blank

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backends.simt.schedule import UNDEFINED
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#define ME threadIdx.x
#define ALL 0xffffffffu

// ---- shuffles ----
__global__ void from_ended(float* out, const float* x) {
  if (ME >= 20) return;
  out[ME] = __shfl_down_sync(ALL, x[ME], 4);  // from the ended
}
__global__ void from_outside(float* out, const float* x) {
  if (ME < 16) out[ME] = __shfl_sync(0xffffu, x[ME], 16);  // from outside
}
__global__ void from_beyond(float* out, const float* x) {
  out[ME] = __shfl_xor_sync(ALL, x[ME], 16);  // far
}

// ---- barriers ----
__global__ void tree(float* out, const float* x) {
  __shared__ float s[64];
  s[ME] = x[ME];
  __syncthreads();
  for (int step = 32; step > 0; step /= 2) {
    if (ME < step) {
      s[ME] += s[ME + step];
      __syncthreads();  // of those that add
    }
  }
  if (ME == 0) out[0] = s[0];
}
__global__ void out_of_range(float* out, const float* x, int n) {
  __shared__ float s[64];
  if (ME >= n) return;
  s[ME] = x[ME];
  __syncthreads();
  float other = s[n - 1 - ME];
  __syncthreads();
  out[ME] = other;
}
__global__ void last_warp(float* out, const float* x) {
  __shared__ float s[64];
  s[ME] = x[ME];
  __syncthreads();
  if (ME >= 32) return;
  out[ME] = s[ME] + __shfl_xor_sync(ALL, s[ME + 32], 1);
}
"""
ROW_SUM = """
/*
---
op = "row_sum"
entry = "sums"
args = ["out", "x", "cols"]
dims = {{ cols = "x.shape[1]" }}
grid = "x.shape[0]"
block = 24
---
*/
__global__ void sums(float* out, const float* x, int cols) {{
  x += blockIdx.x * cols;
  float sum = 0;
  for (int c = threadIdx.x; c < cols; c += 24) sum += x[c];
  for (int step = 16; step > 0; step /= 2) {{
    float other = __shfl_down_sync(~0u, sum, step);
    {condition} sum += other;
  }}
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}}
"""


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    return Kernels(tmp_path_factory.mktemp("doubts"), SOURCE)


X = np.arange(64, dtype=np.float32)


@pytest.mark.parametrize(
    ("entry", "block", "undefined", "words"),
    [
        ("from_ended", 32, range(16, 20), "__shfl_down_sync of lane 16 reads from lane 20, which has ended"),
        ("from_outside", 32, range(16), "__shfl_sync of lane 0 reads from lane 16, which is not in the mask"),
        ("from_beyond", 16, range(16), "__shfl_xor_sync of lane 0 reads from lane 16, which the block does not have"),
    ],
)
def test_a_shuffle_from_a_lane_that_takes_no_part_gives_an_undefined_value(kernels, entry, block, undefined, words):
    comment = {"from_ended": "from the ended", "from_outside": "from outside", "from_beyond": "far"}[entry]
    wanted = kernels.placed(f"{words}: an undefined value, of thread {undefined[0]} of block 0 (<{comment}>)")
    for mode in (FAST, CHECK):
        for order in ORDERS:
            got = []
            for byte in UNDEFINED:
                ran = kernels.run(
                    entry, block=block, order=order, mode=mode, undefined=byte, out=(out := blank(64)), x=X
                )
                assert (ran.said, ran.warned) == ("", wanted)
                got.append(out)
            written = [i for i in range(64) if not np.isnan(got[0][i])]
            assert [i for i in written if got[0][i] != got[1][i]] == [*undefined]


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.is_float])
def test_undefined_values_are_large_and_of_opposite_sign(name):
    """So that a sum, a maximum and a minimum all show them."""
    dtype = FORMATS[name].dtype
    low, high = sorted(float(np.frombuffer(bytes([byte] * dtype.itemsize), dtype)[0]) for byte in UNDEFINED)
    assert low < -100
    assert high > 100
    assert np.isfinite([low, high]).all()


def test_who_skips_a_barrier_after_another_one_is_named(kernels):
    for mode in (FAST, CHECK):
        for order in ORDERS:
            ran = kernels.run("tree", block=64, mode=mode, order=order, out=(out := blank(1)), x=X)
            assert (ran.said, out[0]) == ("", X.sum())
            assert f"has ended and skips a barrier {kernels.placed('(<of those that add>)')}" in ran.warned


@pytest.mark.parametrize("n", [1, 31, 32, 40, 64])
def test_who_is_out_of_range_may_return_before_all_barriers(kernels, n):
    found = kernels.right("out_of_range", block=64, out=blank(n), x=X, n=n)
    assert found.tolist() == X[:n][::-1].tolist()


def test_who_is_done_may_return_where_no_barrier_follows(kernels):
    found = kernels.right("last_warp", block=64, out=blank(32), x=X)
    assert found.tolist() == [i + 32 + (i ^ 1) for i in range(32)]


@pytest.mark.parametrize(
    ("condition", "kind"), [("if (threadIdx.x + step < 24)", Kind.PASS), ("", Kind.NONDETERMINISTIC)]
)
def test_an_undefined_value_is_a_fault_of_whoever_uses_it(tmp_path, condition, kind):
    (tmp_path / "mine.cu").write_text(ROW_SUM.format(condition=condition))
    subject = user_subject(str(tmp_path / "mine.cu"), ())
    x = [TensorRecipe(shape=(1, 70), dtype="float32", fill=Fill(distribution="normal", seed=seed)) for seed in range(8)]
    with Examiner([subject]) as examiner:
        cases = [Case(op="row_sum", tensors={"x": one}) for one in x]
        checked = list(examiner.check(CheckRequest(case, (subject.key,)) for case in cases))
    words = (
        "__shfl_down_sync of lane 8 reads from lane 24, which the block does not have: an undefined value, of thread 8"
    )
    for one in checked:
        verdict = one.verdicts[subject.key]
        assert verdict.kind is kind
        assert (f"; also seen: {words} of block 0 (mine.cu, line 17)" in verdict.message) is bool(verdict.failed)
