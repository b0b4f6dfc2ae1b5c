"""A failing case becomes the smallest that fails in the same way: exactly, for seeded bugs whose minimum is known."""

import time

import pytest

from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.merging import merge, stays
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.shrink_passes import weight
from kernel_assay.fuzz.triage.shrinker import Shrinker, shrink
from kernel_assay.fuzz.triage.triage import Failure, confirm, investigate
from kernel_assay.kernels.catalog import subjects_of, user_subject

HOUSE = {s.key: s for op in ("gemm", "silu", "embedding") for s in subjects_of(op)}
NAMES = ("gemm/bug_k_tail", "gemm/bug_last_unwritten", "gemm/bug_swapped_tail_rows", "silu/bug_tail")
SOMETIMES = """
import hashlib
import numpy as np
OP = "silu"

def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    chance = hashlib.sha256(x[:1, :2].tobytes()).digest()[0] / 256
    if x.shape[0] >= 3 and x.shape[1] >= 5 and chance < 0.3:
        out[...] = 7
"""
CRASHES = """
import os
import numpy as np
OP = "silu"

def run(out, x):
    if x.shape[1] > 40:
        os.abort()
    if x.shape[0] > 2:
        raise ValueError(x.shape)
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
"""

TAIL_AND_ROUNDING = """
import numpy as np
OP = "silu"

def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w)) * (1 + 6e-7)).astype(x.dtype)
    out[:, out.shape[1] // 4 * 4 :] *= 2
"""


def tensor(*shape, dtype="float32", seed=5, distribution="normal", **fields):
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=distribution, seed=seed), **fields)


def gemm(m, k, n, **fields):
    return Case(op="gemm", tensors={"a": tensor(m, k, **fields), "b": tensor(k, n, seed=6, **fields)})


def silu(*shape, **fields):
    return Case(op="silu", tensors={"x": tensor(*shape, **fields)})


@pytest.fixture(scope="module")
def examiner(tmp_path_factory):
    own = []
    for name, text in (
        ("sometimes", SOMETIMES),
        ("crashes", CRASHES),
        ("tail_and_rounding", TAIL_AND_ROUNDING),
    ):
        path = tmp_path_factory.mktemp("own") / f"{name}.py"
        path.write_text(text)
        own.append(user_subject(str(path), ()))
    with Examiner([*(HOUSE[n] for n in NAMES), HOUSE["silu/numpy_float32"], *own], timeout=5.0) as made:
        yield made


def fail(examiner, key, case):
    verdict = examiner.check([CheckRequest(case, (key,))])[0].verdicts[key]
    assert verdict.failed, verdict
    return Failure(case, examiner.subjects[key], verdict, "test:0")


def find(examiner, key, case, seconds=10.0):
    return investigate(examiner, fail(examiner, key, case), seconds=seconds).finding


def test_a_tail_of_k_shrinks_to_one_term_behind_the_tile(examiner):
    finding = find(examiner, "gemm/bug_k_tail", gemm(37, 145, 21, layout="transposed"))
    assert finding.case.tensors["a"].shape == (1, 33)
    assert finding.case.tensors["b"].shape == (33, 1)
    assert {t.layout for t in finding.case.tensors.values()} == {"contiguous"}
    assert "fails only if k % 32 != 0 and k >= 33" in finding.gates
    assert (finding.state, finding.probability) == (State.MINIMIZED, 1.0)
    assert all(t.fill.distribution in {"ones", "zeros"} for t in finding.case.tensors.values())


def test_what_is_told_already_is_shrunk_and_not_explained_again(examiner, monkeypatch):
    """What it comes down to is the same, and what is filed of that stays as it is."""
    first = find(examiner, "gemm/bug_k_tail", gemm(37, 145, 21, layout="transposed"))
    monkeypatch.setattr("kernel_assay.fuzz.triage.triage.learn_gates", lambda *_: pytest.fail("explained again"))
    failure = fail(examiner, "gemm/bug_k_tail", gemm(9, 70, 50))
    again = investigate(examiner, failure, seconds=10.0, is_told=lambda met: stays(first, met)).finding
    assert (again.id, again.case, again.state) == (first.id, first.case, State.MINIMIZED)
    both = merge(first, again)
    assert (both.gates, both.exhibit, both.variants) == (first.gates, first.exhibit, first.variants)
    assert first.exhibit is not None
    assert both.count == first.count + again.count


def test_what_is_smaller_or_not_shrunk_has_more_to_be_told(examiner):
    met = find(examiner, "gemm/bug_k_tail", gemm(37, 145, 21), seconds=0.0)
    small = find(examiner, "gemm/bug_k_tail", gemm(37, 145, 21))
    assert (stays(small, met), stays(small, small)) == (True, True)
    assert not stays(met, small)
    assert not stays(small.but(state=State.CONFIRMED), small)


def test_swapped_rows_shrink_to_two_rows_that_differ(examiner):
    finding = find(examiner, "gemm/bug_swapped_tail_rows", gemm(45, 20, 33))
    (m, k), (_, n) = finding.case.tensors["a"].shape, finding.case.tensors["b"].shape
    assert (m, k, n) == (2, 1, 1)


def test_an_odd_count_shrinks_to_one(examiner):
    finding = find(examiner, "gemm/bug_last_unwritten", gemm(15, 9, 11))
    assert (finding.case.tensors["a"].shape[0], finding.case.tensors["b"].shape[1]) == (1, 1)
    assert finding.case.elements in {0, 2}
    assert finding.verdict.kind is Kind.UNWRITTEN


def test_an_elementwise_bug_shrinks_to_one_plain_element(examiner):
    special = (Special(value="nan", place="first"),)
    finding = find(examiner, "silu/bug_tail", silu(19, 77, layout="row_gaps", specials=special))
    assert finding.case.tensors["x"].shape == (1, 1)
    assert finding.case.tensors["x"].specials == ()
    assert finding.case.tensors["x"].layout == "contiguous"
    assert finding.case.tensors["x"].fill.distribution == "ones"


@pytest.mark.parametrize("seed", range(5))
def test_a_failure_of_three_seeds_in_ten_shrinks_to_the_exact_minimum(examiner, seed):
    key = "silu/sometimes"
    failing = (silu(90 + seed, 130, seed=s) for s in range(seed * 100, seed * 100 + 90))
    case = next(c for c in failing if examiner.check([CheckRequest(c, (key,))])[0].verdicts[key].failed)
    verdict = fail(examiner, key, case).verdict
    shrinker = Shrinker(examiner, key, verdict, time.monotonic() + 20.0)
    small = shrink(shrinker, case)
    assert shrinker.seeds > 1
    assert small.case.tensors["x"].shape == (3, 5)
    assert small.complete
    again = examiner.check([CheckRequest(small.case, (key,))])[0].verdicts[key]
    assert again.kind is Kind.MISMATCH


def test_shrinking_keeps_the_kind_and_tells_of_others(examiner):
    others = []
    failure = fail(examiner, "silu/crashes", silu(9, 90))
    assert failure.verdict.kind is Kind.CRASHED
    finding = investigate(
        examiner, failure, seconds=10.0, on_other=lambda case, verdict: others.append(verdict.kind)
    ).finding
    assert finding.verdict.kind is Kind.CRASHED
    assert finding.case.tensors["x"].shape in {(0, 41), (1, 41)}
    assert set(others) <= {Kind.RAISED}
    raised = find(examiner, "silu/crashes", silu(9, 30))
    assert raised.verdict.kind is Kind.RAISED
    assert raised.case.tensors["x"].shape in {(3, 0), (3, 1)}


def test_what_comes_back_is_lighter_and_fails(examiner):
    case = gemm(12, 50, 7)
    failure = fail(examiner, "gemm/bug_k_tail", case)
    small = shrink(Shrinker(examiner, failure.subject.key, failure.verdict), case)
    assert weight(small.case) < weight(case)
    assert small.verdict.signature.coarse == failure.verdict.signature.coarse
    checked = examiner.check([CheckRequest(small.case, (failure.subject.key,))])[0]
    assert checked.input_digest == small.input_digest
    assert checked.verdicts[failure.subject.key].message == small.verdict.message


def test_a_minimum_does_not_shrink_and_costs_little(examiner):
    case = find(examiner, "gemm/bug_k_tail", gemm(12, 50, 7)).case
    failure = fail(examiner, "gemm/bug_k_tail", case)
    again = shrink(Shrinker(examiner, failure.subject.key, failure.verdict), case)
    assert again.case.id == case.id
    assert again.executions < 400


def test_without_time_the_case_stays_as_it_is(examiner):
    failure = fail(examiner, "gemm/bug_k_tail", gemm(12, 50, 7))
    kept = investigate(examiner, failure, seconds=0.0).finding
    assert (kept.case.id, kept.state) == (failure.case.id, State.CONFIRMED)
    stopped = investigate(examiner, failure, seconds=10.0, stopping=lambda: True).finding
    assert stopped.verdict.failed
    late = shrink(Shrinker(examiner, failure.subject.key, failure.verdict, deadline=time.monotonic()), failure.case)
    assert not late.complete


def test_what_does_not_show_again_is_flaky(examiner):
    failure = fail(examiner, "gemm/bug_k_tail", gemm(2, 33, 2))
    gone = Failure(gemm(2, 32, 2), failure.subject, failure.verdict)
    assert (confirm(examiner, failure).hits, confirm(examiner, failure).times) == (5, 5)
    assert (confirm(examiner, gone).hits, confirm(examiner, gone).times) == (0, 65)
    finding = investigate(examiner, gone, seconds=5.0).finding
    assert (finding.state, finding.probability, finding.case.id) == (State.FLAKY, 0.0, gone.case.id)


def test_the_smallest_case_says_who_agrees_with_whom(examiner):
    finding = find(examiner, "silu/bug_tail", silu(5, 7))
    assert "numpy_float32" in finding.verdict.blame


def test_a_large_error_does_not_become_one_that_is_hardly_over_the_line(examiner):
    assert 1 < fail(examiner, "silu/tail_and_rounding", silu(4, 4)).verdict.rho < 2
    finding = find(examiner, "silu/tail_and_rounding", silu(37, 22))
    assert finding.case.tensors["x"].shape == (1, 1)
    assert finding.verdict.rho > 1e5
