"""A law is judged only where rounding kept it, and only by the bits."""

import numpy as np
import pytest

from corpus.materialize import materialize_all
from corpus.records import Case, Execution, Fill, Kind, OutputReport, Special, Status, Subject, TensorRecipe
from oracles.catalog import contract_of, load_contracts
from oracles.judge import Evidence
from oracles.laws import applies, judge_law, law_of
from oracles.reference import Reference
from oracles.relations import scaled

GEMM = contract_of("gemm")
SUBJECT = Subject(op="gemm", name="mine", backend="numpy")


def gemm(dtype="float32", distribution="normal", scale=1.0, **fields):
    fill = Fill(distribution=distribution, seed=1, scale=scale)
    one = TensorRecipe(shape=(4, 4), dtype=dtype, fill=fill, **fields)
    return Case(op="gemm", tensors={"a": one, "b": one.but(fill=fill.but(seed=2))})


def holds(law, case):
    other = law.transform(case)
    return applies(law, case, materialize_all(case), other, materialize_all(other))


def evidence(case, out):
    reference = Reference(GEMM, case, materialize_all(case))
    report = OutputReport(name="out", shape=out.shape, dtype=out.dtype.name)
    execution = Execution(status=Status.OK, subject="gemm/mine", outputs=(report,))
    return Evidence(reference, SUBJECT, execution, {"out": out})


@pytest.mark.parametrize("op", load_contracts())
def test_laws_have_names_of_their_own_and_are_found(op):
    laws = load_contracts()[op].laws
    assert len({law.name for law in laws}) == len(laws)
    assert all(law_of(load_contracts()[op], law.name) is law for law in laws)
    assert law_of(load_contracts()[op], "no_such") is None


def test_scaling_changes_the_scale_and_nothing_else():
    law = law_of(GEMM, "scaling")
    case = gemm()
    other = law.transform(case)
    assert other.tensors["a"].fill.scale == 4.0
    assert other.tensors["b"].id == case.tensors["b"].id
    assert other.but(tensors=case.tensors).id == case.id


@pytest.mark.parametrize("change", [
    {"distribution": "raw_bits"}, {"distribution": "log_uniform"}, {"pokes": ((0, 1),)},
    {"specials": (Special(value="nan", place="first"),)},
])  # fmt: skip
def test_bit_patterns_do_not_scale(change):
    assert law_of(GEMM, "scaling").transform(gemm(**change)) is None


def test_a_law_applies_where_scaling_is_exact():
    assert holds(law_of(GEMM, "scaling"), gemm())
    assert holds(law_of(GEMM, "negation"), gemm())


@pytest.mark.parametrize("case", [
    gemm("float16", scale=2.0**14),  # times 4 overflows
    gemm("float16", scale=2.0**-24),  # subnormal: rounding differs
    gemm(scale=2.0**-60),  # products underflow
    gemm(scale=2.0**63),  # products overflow
], ids=["overflow", "subnormal", "tiny", "huge"])  # fmt: skip
def test_a_law_is_silent_where_scaling_is_inexact_or_extreme(case):
    assert not holds(law_of(GEMM, "scaling"), case)


def test_a_factor_that_is_no_power_of_two_is_inexact():
    assert not holds(scaled("three", {"a": 3.0}, factor=3.0), gemm("float16"))


def test_a_law_is_judged_by_the_bits():
    law, case = law_of(GEMM, "scaling"), gemm()
    a = np.linspace(1, 2, 16, dtype=np.float32).reshape(4, 4)
    other = law.transform(case)
    assert judge_law(law, evidence(case, a), evidence(other, a * 4)) is None
    broken = a * 4
    broken[2, 1] = np.nextafter(broken[2, 1], np.float32(9))
    verdict = judge_law(law, evidence(case, a), evidence(other, broken))
    assert (verdict.kind, verdict.rule, verdict.output) == (Kind.MISMATCH, "law:scaling", "out")
    assert "out[2, 1] is" in verdict.message
    assert "1 of 16 elements" in verdict.message
    assert (verdict.signature.rule, verdict.signature.error_pattern) == ("law:scaling", "law")


def test_the_sign_of_a_law_counts():
    law, case = law_of(GEMM, "negation"), gemm()
    a = np.ones((4, 4), np.float32)
    assert judge_law(law, evidence(case, a), evidence(case, -a)) is None
    assert judge_law(law, evidence(case, a), evidence(case, a)) is not None


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, 1e-40, 3e38])
def test_a_law_is_silent_about_values_that_do_not_scale(value):
    law, case = law_of(GEMM, "scaling"), gemm()
    a = np.ones((4, 4), np.float32)
    b = a * 4
    a[1, 1] = value
    assert judge_law(law, evidence(case, a), evidence(case, b)) is None


def test_a_result_of_another_shape_proves_nothing():
    law, case = law_of(GEMM, "scaling"), gemm()
    a = np.ones((4, 4), np.float32)
    assert judge_law(law, evidence(case, a), evidence(case, a[:2])) is None
