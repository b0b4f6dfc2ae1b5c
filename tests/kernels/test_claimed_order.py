"""Sums whose order changes: two runs that differ pass if that is claimed, and if both are right."""

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.usefixtures("simt_cache")
SUM = """
/*
---
op = "row_sum"
entry = "sums"
args = ["out", "x", "cols"]
dims = {{ cols = "x.shape[1]" }}
grid = "x.shape[0]"
block = 64
{claim}
---
*/
__global__ void sums(float* out, const float* x, int cols) {{
  __shared__ float total;
  x += blockIdx.x * cols;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += 64) {add};
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}}
"""
CLAIM = 'numerics = { order = "any" }'
NOISY = """
import numpy as np

OP = "row_sum"
DTYPES = ("float32",)
NUMERICS = {claim}
BY = iter(range(1 << 20))


def run(x):
    return (x.sum(axis=1, dtype=np.float64) * (1 + {noise} * (next(BY) % 2))).astype(np.float32)
"""
"""Every second call is off by a share."""


def kinds(path, text):
    path.write_text(text)
    subject = user_subject(str(path), ())
    x = [
        TensorRecipe(shape=(4, 333), dtype="float32", fill=Fill(distribution="normal", seed=seed)) for seed in range(8)
    ]
    with Examiner([subject]) as examiner:
        asked = (CheckRequest(Case(op="row_sum", tensors={"x": one}), (subject.key,)) for one in x)
        return {checked.verdicts[subject.key].kind for checked in examiner.check(asked)}


@pytest.mark.parametrize(("claim", "found"), [("", {Kind.PASS, Kind.NONDETERMINISTIC}), (CLAIM, {Kind.PASS})])
def test_the_order_of_a_sum_may_change_if_that_is_claimed(tmp_path, claim, found):
    assert kinds(tmp_path / "mine.cu", SUM.format(claim=claim, add="atomicAdd(&total, x[c])")) == found


def test_a_race_is_found_in_spite_of_the_claim(tmp_path):
    assert Kind.RACE in kinds(tmp_path / "mine.cu", SUM.format(claim=CLAIM, add="total += x[c]"))


@pytest.mark.parametrize(
    ("noise", "claim", "found"),
    [
        (2.0**-23, {}, {Kind.NONDETERMINISTIC}),
        (2.0**-23, {"order": "any"}, {Kind.PASS}),
        (2.0**-10, {"order": "any"}, {Kind.NONDETERMINISTIC, Kind.MISMATCH}),  # as the second is off, or the first
    ],
)
def test_what_differs_beyond_its_budget_is_found_in_spite_of_the_claim(tmp_path, noise, claim, found):
    assert kinds(tmp_path / "mine.py", NOISY.format(claim=claim, noise=noise)) == found
