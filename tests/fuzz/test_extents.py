"""What is wrong with a kernel at sizes that nobody runs: seeded bugs of launches and indices, and honest kernels."""

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
}
SAID = {
    "grid_y": "rows = 65,536: a grid of 1 x 65536 x 1",
    "product": "rows = 2,097,156, cols = 1,024: thread 0 of block 2097152 reads",
    "unsigned": "rows = 4,194,308, cols = 1,024: thread 0 of block 4194304 writes",
    "taken": "n is 2,147,",
    "held": "of block 838",
}
HONEST = {
    "wide": (ROWS, PLAIN),
    "required": (ROWS, {**PLAIN, "index": "int", "more": REQUIRES}),
    "bounded": (ROWS, {**PLAIN, "grid": '[1, "rows"]', "block": "blockIdx.y", "more": 'requires = ["rows < 65536"]'}),
    "strided": (FLAT, {"grid": "min(ceil_div(n, 256), 1048576)", "count": "size_t", "body": STRIDED}),
}


@pytest.fixture(scope="module")
def examiner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    for name, (text, words) in {**WRONG, **HONEST}.items():
        (folder / f"{name}.cu").write_text(text.format(**words))
    with Examiner([user_subject(str(path), ()) for path in sorted(folder.glob("*.cu"))]) as made:
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
