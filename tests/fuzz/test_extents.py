"""What is wrong with a kernel at sizes that nobody runs: seeded bugs of launches and indices, and honest kernels."""

import os
import signal
import time

import pytest

from kernel_assay.fuzz.checking import extents
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.extents import limits, noted
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
ROWS = """/*
---
op = "softmax"
entry = "softmax"
args = ["out", "x", "rows", "cols"]
dims = {{ rows = "x.shape[0]", cols = "x.shape[1]" }}
grid = {grid}
block = 32
{more}
---
*/
__global__ void softmax(float* out, const float* x, {extent} rows, {extent} cols) {{
  {index} row = {block};
  if (row >= rows) return;
  float top = -INFINITY, sum = 0;
  for (int c = 0; c < cols; ++c) top = fmaxf(top, x[row * cols + c]);
  for (int c = 0; c < cols; ++c) sum += expf(x[row * cols + c] - top);
  for (int c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = expf(x[row * cols + c] - top) / sum;
}}
"""
FLAT = """/*
---
op = "silu"
entry = "silu"
args = ["out", "x", "n"]
dims = {{ n = "x.size" }}
grid = "{grid}"
block = 256
---
*/
__global__ void silu(float* out, const float* x, {count} n) {{
  {body}
}}
"""
ONE = "out[i] = x[i] / (1 + expf(-x[i]));"
PLAIN = {"grid": '"rows"', "more": "", "extent": "int", "index": "long", "block": "blockIdx.x"}
CAST = "int i = static_cast<short>(blockIdx.x) * 256 + threadIdx.x;"
TANH = """/*
---
op = "gelu"
entry = "gelu"
args = ["out", "x", "n"]
dims = {{ n = "x.size" }}
requires = ["approximate == 'tanh'", "x.size < 2147483648"]
grid = "ceil_div(n, 256)"
block = 256
---
*/
__global__ void gelu(float* out, const float* x, int n) {{
  int i = static_cast<short>(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) out[i] = 0.5f * x[i] * (1 + tanhf(0.7978845608f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}}
"""
LOCAL = """/*
---
op = "silu"
entry = "silu"
args = ["out", "x", "n"]
dims = {{ n = "x.size" }}
requires = ["n < 2147483648"]
grid = "ceil_div(n, 256)"
block = 256
---
*/
__constant__ unsigned char turned[4] = {{2, 3, 0, 1}};
__global__ void silu(float* out, const float* x, int n) {{
  unsigned char lane = threadIdx.x & 31, part = turned[lane >> 3];
  short warp = threadIdx.x / 32, first = warp * 32 + part * 8 + (lane & 7);
  unsigned short hash = blockIdx.x;  // wraps, and may
  int i = blockIdx.x * 256 + (first ^ (hash & 7));
  if (i < n) out[i] = x[i] / (1 + expf(-x[i]));
}}
"""
TRITON = """import triton
import triton.language as tl

BACKEND = "triton"
DTYPES = ("float32",)


@triton.jit
def _silu(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to({kind}) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value / (1 + tl.exp(-value)), mask=at < n)


def run(out, x):
    {guard}
    _silu[({grid},)](out, x, x.numel(), BLOCK=256)
"""
BLOCKS = "max(1, triton.cdiv(x.numel(), 256))"
REFUSES = "if x.numel() > 32767: raise NotImplementedError"
FULL = "min(ceil_div(n, 256), 2147483647)"
WIDE, NARROW = "long i = blockIdx.x * 256L + threadIdx.x;", "int i = blockIdx.x * 256 + threadIdx.x;"
STRIDED = f"for (size_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {ONE}"
REQUIRES = 'requires = ["x.size < 2147483648"]'
WRONG = {
    "grid_y": (ROWS, {**PLAIN, "grid": '[1, "rows"]', "block": "blockIdx.y"}),
    "product": (ROWS, {**PLAIN, "index": "int"}),
    "unsigned": (ROWS, {**PLAIN, "index": "unsigned"}),
    "taken": (FLAT, {"grid": FULL, "count": "int", "body": f"{WIDE} if (i < n) {ONE}"}),
    "held": (FLAT, {"grid": FULL, "count": "long", "body": f"{NARROW} if (i < n) {ONE}"}),
    "short": (ROWS, {**PLAIN, "index": "short", "more": 'requires = ["x.size < 2147483648"]'}),
    "unsigned_short": (ROWS, {**PLAIN, "index": "unsigned short", "more": 'requires = ["x.size < 2147483648"]'}),
    "cast": (FLAT, {"grid": "ceil_div(n, 256)", "count": "int", "body": f"{CAST} if (i < n) {ONE}"}),
    "tanh": (TANH, {}),
    "triton": (TRITON, {"kind": "tl.int16", "guard": "", "grid": BLOCKS}),
}
SAID = {
    "grid_y": "rows = 65,536: a grid of 1 x 65536 x 1",
    "product": "rows = 2,097,156, cols = 1,024: thread 0 of block 2097152 reads",
    "unsigned": "rows = 4,194,308, cols = 1,024: thread 0 of block 4194304 writes",
    "taken": "n is 2,147,",
    "held": "of block 838",
    "short": "rows = 32,772: thread 0 of block 32768 reads",
    "unsigned_short": "rows = 65,540: thread 0 of block 65536 writes",
    "cast": "rows = 8,389,636: thread 0 of block 32769 reads",
    "tanh": "rows = 8,389,636: thread 0 of block 32769 reads",
    "triton": "rows = 32,772: program 128 reads x[-32768]",
}
HONEST = {
    "wide": (ROWS, PLAIN),
    "required": (ROWS, {**PLAIN, "index": "int", "more": REQUIRES}),
    "bounded": (ROWS, {**PLAIN, "grid": '[1, "rows"]', "block": "blockIdx.y", "more": 'requires = ["rows < 65536"]'}),
    "strided": (FLAT, {"grid": "min(ceil_div(n, 256), 1048576)", "count": "size_t", "body": STRIDED}),
    "narrow": (ROWS, {**PLAIN, "index": "short", "more": 'requires = ["rows < 32768"]'}),
    "local": (LOCAL, {}),
    "triton_wide": (TRITON, {"kind": "tl.int64", "guard": "", "grid": BLOCKS}),
    "triton_refuses": (TRITON, {"kind": "tl.int16", "guard": REFUSES, "grid": BLOCKS}),
}


@pytest.fixture(scope="module")
def examiner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    for name, (text, words) in {**WRONG, **HONEST}.items():
        (folder / f"{name}{'.py' if text is TRITON else '.cu'}").write_text(text.format(**words))
    with Examiner([user_subject(str(path), ("silu",) * (path.suffix == ".py")) for path in folder.iterdir()]) as made:
        yield made


def found(examiner, name):
    (subject,) = (s for s in examiner.subjects.values() if s.name == name)
    return list(limits(examiner, subject, time.monotonic() + 30.0))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_large_tensor_is_told_with_its_size(examiner, name):
    said = found(examiner, name)
    assert any(SAID[name] in sentence for sentence in said), said
    assert len(said) <= 2, said


@pytest.mark.parametrize("name", HONEST)
def test_who_is_right_or_declines_such_tensors_is_told_nothing(examiner, name):
    assert found(examiner, name) == []


def test_what_is_wrong_with_few_elements_is_none_of_its_business(examiner, tmp_path):
    text = ROWS.format(**{**PLAIN, "index": "int"}).replace("x[row * cols + c])", "x[row * cols + c + 1])")
    path = tmp_path / "always.cu"
    path.write_text(text)
    with Examiner([user_subject(str(path), ())]) as other:
        assert found(other, "always") == []


def test_it_ends_in_time(examiner, monkeypatch):
    """Who loops for ever over so much is not told of, and the sandbox goes on."""
    monkeypatch.setattr(extents, "MOST_WORK", 1 << 40)
    monkeypatch.setattr(extents, "LAUNCH_SECONDS", 0.3)
    begin = time.monotonic()
    (subject,) = (s for s in examiner.subjects.values() if s.name == "wide")
    assert list(limits(examiner, subject, begin + 1.0)) == []
    assert time.monotonic() - begin < 20.0
    assert found(examiner, "grid_y")


def test_a_run_notes_what_it_is_told_of_own_kernels(examiner):
    mine = [s for s in examiner.subjects.values() if s.name in {"grid_y", "wide"}]
    campaign = new_campaign("r1", 1, "conjecture", mine)
    assert set(noted(campaign, examiner).limits) == {"softmax/grid_y"}


def test_a_worker_that_has_died_since_is_replaced(examiner):
    sandbox = examiner.sandbox
    os.kill(sandbox.pool.pid_of(sandbox._active), signal.SIGKILL)
    sandbox.pool.ending(sandbox._active)
    assert found(examiner, "grid_y")
