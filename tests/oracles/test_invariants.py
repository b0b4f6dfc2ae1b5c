"""What one run keeps by itself: judged by budgets alone, silent where an element may be anything."""

import numpy as np
import pytest

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.failure_detail import exhibit_of_invariant
from kernel_assay.oracles.judging.invariants import SHOWN, invariants, judge_invariant, sums
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.laws import law_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to

SUM, NORM = law_of(contract_of("softmax"), "sum"), law_of(contract_of("rope"), "norm")
TYPES = ["float32", "float16", "bfloat16", "float64"]
ROTATIONS = [("interleaved", 1), ("neox", 1), ("interleaved", 2), ("neox", 4)]


def softmax(shape=(5, 33), dtype="float32", distribution="normal", **fields):
    fill = Fill(distribution=distribution, seed=2)
    return Case(op="softmax", tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=fill, **fields)})


def rope(style="interleaved", part=1, dtype="float32", tables=(), **fields):
    fill = Fill(distribution="normal", seed=2)
    x = TensorRecipe(shape=(4, 3, 16), dtype=dtype, fill=fill, **fields)
    table = {name: TensorRecipe(shape=(4, 8 // part), dtype=dtype, fill=fill) for name in tables}
    return Case(op="rope", tensors={"x": x, **table}, attrs={"style": style, "part": part})


def right(case):
    """The evidence of a kernel that is right."""
    reference = Reference(contract_of(case.op), case, materialize_all(case))
    out = round_to(reference.want["out"], format_of(case.dtype))
    report = OutputReport(name="out", shape=out.shape, dtype=case.dtype)
    execution = Execution(status=Status.OK, subject="mine", outputs=(report,))
    return Evidence(reference, Subject(op=case.op, name="mine", backend="numpy"), execution, {"out": out})


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("distribution", ["normal", "zeros", "wide", "offset", "log_uniform", "huge_row"])
def test_rows_of_a_right_softmax_sum_to_one(dtype, distribution):
    assert judge_invariant(SUM, right(softmax(dtype=dtype, distribution=distribution))) is None


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_that_does_not_is_named(dtype):
    e = right(softmax(dtype=dtype))
    e.outputs["out"][[1, 3]] *= e.outputs["out"].dtype.type(1.25)
    verdict = judge_invariant(SUM, e)
    assert (verdict.kind, verdict.rule, verdict.output) == (Kind.MISMATCH, "law:sum", "out")
    assert verdict.message.startswith("law sum: the sum of row [")
    assert " of out is 1.2" in verdict.message
    assert ", must be 1 to within " in verdict.message
    assert verdict.message.endswith(" (2 of 5 rows break it)")
    assert verdict.signature.error_pattern == "law"


def test_less_than_the_budgets_of_a_row_is_no_failure():
    e = right(softmax())
    room = sums(SUM, e).allowed[2]
    e.outputs["out"][2, 0] += np.float32(0.5 * room)
    assert judge_invariant(SUM, e) is None
    e.outputs["out"][2, 0] += np.float32(1.5 * room)
    assert judge_invariant(SUM, e) is not None


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_rows_with_other_than_numbers_are_left_out(value):
    e = right(softmax(specials=(Special(value=value, place="last"),)))
    e.outputs["out"][4] *= 2
    assert judge_invariant(SUM, e) is None
    e.outputs["out"][3] *= 2
    assert "row [3]" in judge_invariant(SUM, e).message


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_no_elements_no_sum(shape):
    assert invariants(right(softmax(shape)).reference, {"sum"}) == []


def test_only_those_that_are_asked_for():
    reference = right(softmax()).reference
    assert invariants(reference, {"sum", "shift"}) == [SUM]
    assert invariants(reference, {"shift"}) == []


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("style", "part"), ROTATIONS)
def test_a_right_rotation_keeps_lengths(style, part, dtype):
    e = right(rope(style, part, dtype))
    assert judge_invariant(NORM, e) is None
    assert sums(NORM, e).found.shape == (4, 3, 8 // part)


@pytest.mark.parametrize(("style", "part"), ROTATIONS)
def test_a_pair_that_was_scaled_is_named(style, part):
    e = right(rope(style, part))
    first, second = (6, 7) if style == "interleaved" else (1, 1 + 8 // part)
    e.outputs["out"][2, 1, [first, second]] *= np.float32(1.5)
    pair = 3 if style == "interleaved" else 1
    message = judge_invariant(NORM, e).message
    assert message.startswith(f"law norm: the length of pair [2, 1, {pair}] of out is ")
    assert message.endswith(f"(1 of {4 * 3 * 8 // part} pairs break it)")


def test_given_tables_need_not_rotate():
    e = right(rope(tables=("cos", "sin")))
    assert invariants(e.reference, {"norm"}) == []
    assert sums(NORM, e) is None


@pytest.mark.parametrize("value", ["nan", "inf", "max"])
def test_a_pair_of_other_than_numbers_is_left_out(value):
    assert (
        judge_invariant(NORM, right(rope(dtype="float64", specials=(Special(value=value, place="one_row"),)))) is None
    )


@pytest.mark.parametrize(("law", "case"), [(SUM, softmax()), (NORM, rope("neox")), (SUM, softmax((2, 3)))])
def test_what_is_shown_of_it(law, case):
    e = right(case)
    e.outputs["out"][...] *= np.float32(1.5)
    verdict = judge_invariant(law, e)
    shown = exhibit_of_invariant(law, e, verdict, returns=True)
    assert Exhibit.model_validate_json(shown.model_dump_json()).canonical() == shown.canonical()
    assert shown.failing == e.outputs["out"].size
    assert (shown.shape, shown.dtype, shown.returns, shown.partner) == (e.outputs["out"].shape, "float32", True, None)
    assert all(el.fails for el in shown.elements)
    groups = sums(law, e)
    assert len(shown.groups) == min(SHOWN, groups.bad.sum())
    ratios = [abs(g.got - g.wanted) / g.bound for g in shown.groups]
    assert ratios == sorted(ratios, reverse=True)
    flat = e.outputs["out"].astype(np.float64).reshape(-1)
    for g in shown.groups:
        some = flat[g.start :: g.step][: g.count]
        assert g.got == pytest.approx(some.sum() if law is SUM else np.hypot(*some), rel=1e-12)
        assert (g.of, len(some)) == (law.of, g.count)


def test_what_the_oracle_would_find_is_found_without_it():
    """The last term missing from the sum: both say so, each from its own knowledge."""
    e = right(softmax((2, 9)))
    x = e.reference.inputs["x"].astype(np.float64)
    e.outputs["out"][...] = np.exp(x) / np.exp(x)[:, :-1].sum(axis=1, keepdims=True)
    assert judge(e.reference, e.subject, e.execution, e.outputs).kind is Kind.MISMATCH
    assert judge_invariant(SUM, e).kind is Kind.MISMATCH
