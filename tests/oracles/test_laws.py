"""A law is judged only where rounding kept it, and only by the bits."""

from dataclasses import replace

import numpy as np
import pytest

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.judge import Evidence
from kernel_assay.oracles.judging.laws import applies, judge_law, law_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, PINF, ZERO, Budget, Contract, Dim, Input, Output
from kernel_assay.oracles.spec.law_library import alone, doubled, prefix, reversed_along, scaled

GEMM = contract_of("gemm")
SUBJECT = Subject(op="gemm", name="mine", backend="numpy")


def gemm(dtype="float32", distribution="normal", scale=1.0, **fields):
    fill = Fill(distribution=distribution, seed=1, scale=scale)
    one = TensorRecipe(shape=(4, 4), dtype=dtype, fill=fill, **fields)
    return Case(op="gemm", tensors={"a": one, "b": one.but(fill=fill.but(seed=2))})


def holds(law, case):
    other = law.transform(case)
    return applies(case, materialize_all(case), other, materialize_all(other))


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


@pytest.mark.parametrize("scale", [1.0, 0.25, 8.0])
def test_a_law_applies_where_scaling_is_exact(scale):
    assert holds(law_of(GEMM, "scaling"), gemm(scale=scale))
    assert holds(law_of(GEMM, "negation"), gemm(scale=scale))


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


HALF = [{"accumulate": "float16"}, {"intermediates": {"p": "float16"}}, {"intermediates": {"p": "input"}}]


@pytest.mark.parametrize(("says", "dtype", "silent"), [
    *((says, "float16", True) for says in HALF), ({"intermediates": {"p": "input"}}, "float32", False),
    ({"accumulate": "bfloat16"}, "float16", False), ({"tf32": "rn"}, "float32", False),
])  # fmt: skip
def test_who_computes_in_half_is_not_held_to_scaling(says, dtype, silent):
    """Squares and sums leave the range of float16 where those of float32 are tame; signs are no question of range."""
    case = gemm(dtype)
    a = np.ones((4, 4), dtype)
    for name, broken, spoken in (("scaling", 2 * a, not silent), ("negation", a, True)):
        law = law_of(GEMM, name)
        pair = (evidence(c, x) for c, x in ((case, a), (law.transform(case), broken)))
        base, other = (replace(e, subject=SUBJECT.but(numerics=Numerics(**says))) for e in pair)
        assert (judge_law(law, base, other) is not None) == spoken


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


# ---- cut and reversed


def rows(op="row_sum", shape=(5, 7), dtype="float32", distribution="normal", **fields):
    fill = Fill(distribution=distribution, seed=3, params=fields.pop("params", {}))
    return Case(op=op, tensors={"x": TensorRecipe(shape=shape, dtype=dtype, fill=fill, **fields)})


EVERY = [n for n, d in DISTRIBUTIONS.items() if d.floats]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("distribution", EVERY)
def test_a_row_alone_is_the_last_row_of_many(distribution, layout):
    case = rows(distribution=distribution, layout=layout, origin=(2, 5), pokes=((0, 1), (34, 77)))
    law = alone("row_alone", {"x": 0, "not_there": 0})
    other = law.transform(case)
    assert other.tensors["x"].shape == (1, 7)
    whole, row = materialize_all(case)["x"], materialize_all(other)["x"]
    assert row.tobytes() == whole[law.view(case)].tobytes() == whole[4:5].tobytes()
    assert holds(law, case)
    assert holds(alone("column_alone", {"x": 1}, out=1), case)


def test_specials_stay_at_their_places_so_nothing_is_cut():
    case = rows(specials=(Special(value="nan", place="last"),))
    assert alone("row_alone", {"x": 0}).transform(case) is None
    assert holds(reversed_along("columns_reversed", {"x": 1}), case), "but they are reversed with the rest"


@pytest.mark.parametrize("shape", [(0, 7), (1, 7)])
def test_a_row_that_is_alone_is_not_cut(shape):
    assert alone("row_alone", {"x": 0}).transform(rows(shape=shape)) is None
    assert reversed_along("rows_reversed", {"x": 0}, out=0).transform(rows(shape=shape)) is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("distribution", EVERY)
def test_a_reversed_tensor_is_the_other_one_backwards(distribution, layout):
    case = rows(distribution=distribution, layout=layout, pokes=((3, 5),))
    for axis in (0, 1):
        law = reversed_along("reversed", {"x": axis}, out=axis)
        other = law.transform(case)
        assert materialize_all(other)["x"].tobytes() == materialize_all(case)["x"][law.view(case)].tobytes()
        assert holds(law, case)
        assert law.transform(other) is None


def test_of_a_prefix_the_beginning_is_left():
    law = prefix("prefix", {"a": 1, "b": 0}, out=0)
    a, b = (TensorRecipe(shape=shape, dtype="float32", fill=Fill(distribution="normal")) for shape in ((4, 5), (9, 3)))
    case = Case(op="gemm", tensors={"a": a, "b": b})
    other = law.transform(case)
    assert [t.shape for t in other.tensors.values()] == [(4, 3), (7, 3)]
    assert law.view(case) == (slice(0, -2),)
    assert holds(law, case)
    assert law.transform(case.but(tensors={"a": a.but(shape=(4, 1)), "b": b})) is None


@pytest.mark.parametrize("change", [
    {"origin": (1, 0)}, {"fill": Fill(distribution="normal", seed=4)}, {"shape": (2, 7)}, {"shape": (2, 8)},
    {"fill": Fill(distribution="normal", seed=3, params={"flip": 1})}, {"dtype": "float64"},
])  # fmt: skip
def test_other_inputs_than_the_recipes_say_are_refused(change):
    case, other = rows(), alone("row_alone", {"x": 0}).transform(rows())
    wrong = materialize_all(other.but(tensors={"x": other.tensors["x"].but(**change)}))
    assert applies(case, materialize_all(case), other, materialize_all(other))
    assert not applies(case, materialize_all(case), other, wrong)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_values_of_every_width_are_scaled(dtype):
    assert holds(law_of(GEMM, "scaling"), gemm(dtype))


@pytest.mark.parametrize(("dtype", "distribution", "exact"), [
    ("float64", "uniform", False), ("float64", "small_integers", True), ("float32", "uniform", False),
    ("float32", "powers_of_two", True),
])  # fmt: skip
def test_a_shift_that_rounds_is_none(dtype, distribution, exact):
    """In float64, where what is due is rounded as the values are."""
    softmax = contract_of("softmax")
    x = TensorRecipe(shape=(3, 5), dtype=dtype, fill=Fill(distribution=distribution, seed=1))
    assert holds(law_of(softmax, "shift"), Case(op="softmax", tensors={"x": x}, attrs={"scale": 1.0})) == exact


def test_what_is_extreme_may_be_cut_but_not_scaled():
    case = rows(distribution="log_uniform")
    assert holds(alone("row_alone", {"x": 0}), case)
    assert not holds(doubled("alpha", {"alpha": 1.0}), case)
    assert holds(doubled("alpha", {"alpha": 1.0}), rows())


def test_attributes_are_doubled_that_are_read():
    law, case = doubled("linearity", {"alpha": 1.0, "beta": 1.0}), gemm()
    assert law.transform(case).attrs == {"alpha": 2.0, "beta": 2.0}
    assert law.transform(case.but(attrs={"alpha": 0.3, "beta": -1.7})).attrs == {"alpha": 0.6, "beta": -3.4}
    assert law.transform(case.but(attrs={"alpha": 0.0})) is None


def test_integers_may_be_cut_but_not_scaled():
    case = rows(dtype="int8", distribution="raw_bits")
    assert holds(alone("row_alone", {"x": 0}), case)
    plain = rows(dtype="int8", distribution="small_integers")
    assert not holds(scaled("scaling", {"x": 2.0}, factor=2.0), plain)


def test_indices_beside_what_is_scaled_do_not_matter():
    table = TensorRecipe(shape=(4, 3), dtype="float32", fill=Fill(distribution="normal", seed=1))
    indices = TensorRecipe(shape=(5,), dtype="int64", fill=Fill(distribution="uniform", params={"below": 4}))
    case = Case(op="embedding", tensors={"table": table, "indices": indices})
    assert holds(scaled("scaling", {"table": 2.0}, factor=2.0), case)


# ---- within error budgets


ECHO = Contract(
    name="echo",
    summary="a copy, more or less",
    dims={"rows": Dim(), "cols": Dim()},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t} for t in ("float64", "float32", "float16", "bfloat16", "int32")),
    reference=lambda x: {"out": x},
    laws=(alone("row_alone", {"x": 0}),),
)


def both(budget, dtype="float32", law=None, **changes):
    """A law, and what is known of its two runs; both outputs are right."""
    law = law or ECHO.laws[0]
    case = rows("echo", dtype=dtype, **changes)
    contract = replace(ECHO, budget=lambda _: {"out": budget})
    return law, *(heard(contract, c, materialize_all(c)["x"].copy()) for c in (case, law.transform(case)))


def heard(contract, case, out):
    reference = Reference(contract, case, materialize_all(case))
    report = OutputReport(name="out", shape=out.shape, dtype=format_of(out.dtype).name)
    execution = Execution(status=Status.OK, subject=f"{case.op}/mine", outputs=(report,))
    return Evidence(reference, SUBJECT.but(op=case.op), execution, {"out": out})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_two_right_results_may_be_two_budgets_apart(dtype, sign):
    """Each is the rounding of a number that is off by a whole budget, in opposite directions."""
    fmt = format_of(dtype)
    law, base, other = both(Budget(1e-3), dtype)
    want = base.reference.want["out"]
    base.outputs["out"][...] = round_to(want - sign * 1e-3, fmt)
    other.outputs["out"][...] = round_to(want[4:5] + sign * 1e-3, fmt)
    assert judge_law(law, base, other) is None
    step = 4e-5 + 6.0 * fmt.unit * float(np.abs(want[4, 3]))
    other.outputs["out"][0, 3] = np.float64(other.outputs["out"][0, 3]) + sign * step
    verdict = judge_law(law, base, other)
    assert (verdict.kind, verdict.rule, verdict.output) == (Kind.MISMATCH, "law:row_alone", "out")
    assert "law row_alone: out[0, 3] is " in verdict.message
    assert "but out[4, 3] of the first run is" in verdict.message
    assert "times as far as 2 error budgets and rounding explain (1 of 7 elements break it)" in verdict.message


def test_what_cannot_be_rounded_before_must_be_equal():
    law, base, other = both(Budget(0.0))
    other.outputs["out"][0, 2] = np.nextafter(other.outputs["out"][0, 2], np.float32(9))
    verdict = judge_law(law, base, other)
    assert "out[0, 2] is " in verdict.message
    assert "must be exactly" in verdict.message
    assert ", as out[4, 2] of the first run (1 of 7" in verdict.message


@pytest.mark.parametrize(("first", "second", "fine"), [
    (1.0, np.nan, False), (1.0, np.inf, False), (np.inf, 3.4e38, False), (3.4028235e38, np.inf, True),
    (np.inf, 3.4028235e38, True), (np.nan, 1.0, True),  # how NaN can have passed there is another question
])  # fmt: skip
def test_a_number_may_not_become_another_class(first, second, fine):
    law, base, other = both(Budget(1e-3))
    base.outputs["out"][4, 0], other.outputs["out"][0, 0] = first, second
    assert (judge_law(law, base, other) is None) == fine


@pytest.mark.parametrize(("accept", "first", "second", "fine"), [
    (NAN, np.nan, np.nan, True), (NAN, np.nan, 1.0, False), (PINF, np.inf, np.inf, True), (PINF, np.inf, 1.0, False),
    (ZERO, 0.0, -0.0, True), (ZERO, 0.0, 1e-30, False), (NAN | ZERO, np.nan, 0.0, True), (31, 1.0, np.inf, True),
    (31, np.inf, 1.0, True), (INTERVAL | NAN, 1.0, 7.0, True),
])  # fmt: skip
def test_where_only_one_class_is_right_the_second_has_it_too(accept, first, second, fine):
    law, base, other = both(Budget(1e-3, accept=np.full((5, 7), accept, np.uint8)))
    base.outputs["out"][4], other.outputs["out"][0] = first, first
    other.outputs["out"][0, 0] = second
    assert (judge_law(law, base, other) is None) == fine


def test_the_element_that_is_named_is_the_worst():
    law, base, other = both(Budget(1e-3))
    other.outputs["out"][0, [1, 5]] += np.float32([0.5, 4.0])
    assert "out[0, 5] is" in judge_law(law, base, other).message
    other.outputs["out"][0, 3] = np.nan
    message = judge_law(law, base, other).message
    assert "out[0, 3] is nan, but out[4, 3] of the first run is" in message
    assert "times" not in message


def test_reversed_rows_are_held_to_their_own():
    law, base, other = both(Budget(1e-3), law=reversed_along("rows_reversed", {"x": 0}, out=0))
    assert judge_law(law, base, other) is None
    other.outputs["out"][[0, 1]] = other.outputs["out"][[1, 0]]
    assert "out[0, " in judge_law(law, base, other).message
    assert "10 of" not in judge_law(law, base, other).message
    assert "(14 of 35 elements break it)" in judge_law(law, base, other).message


def test_integers_must_be_equal_where_bits_count():
    law, base, other = both(Budget(0.0), "int32", alone("row_alone", {"x": 0}, within=0.0), distribution="ties")
    assert judge_law(law, base, other) is None
    other.outputs["out"][0, 6] = 5
    assert "out[0, 6] is 5, must be exactly" in judge_law(law, base, other).message


def test_of_copies_everything_counts():
    case = rows("embedding")
    law = alone("row_alone", {"x": 0}, within=0.0)
    contract = replace(ECHO, budget=lambda _: {"out": Budget(0.0, bitwise=True)}, copies=lambda x: {"out": x})
    for value, fine in ((np.nan, False), (1e-42, False), (0.0, False), (None, True)):
        base = heard(contract, case, materialize_all(case)["x"].copy())
        other = heard(contract, law.transform(case), materialize_all(case)["x"][4:5].copy())
        if value is not None:
            other.outputs["out"][0, 0] = value
        assert (judge_law(law, base, other) is None) == fine


def test_another_right_answer_breaks_no_law():
    """The place of a maximum, of which there are two."""
    contract = contract_of("row_argmax")
    law, tied = law_of(contract, "row_alone"), rows("row_argmax", (2, 4), distribution="zeros")
    case = tied.but(tensors={"x": tied.tensors["x"].but(pokes=((4, 0x3F800000),))})
    assert holds(law, case)
    for one, place, fine in ((case, 0, True), (case, 1, False), (tied, 0, True), (tied, 3, True)):
        base, other = (heard(contract, c, np.array(out)) for c, out in ((one, [1, 0]), (law.transform(one), [place])))
        assert (judge_law(law, base, other) is None) == fine


@pytest.mark.parametrize(("error", "words"), [
    (1e-3, "but 2 times out[1, 2] of the first run is "), (0.0, ", must be exactly "),
])  # fmt: skip
def test_a_factor_multiplies_the_budgets_too(error, words):
    law = doubled("twice", {"scale": 1.0}, within=2.0)
    _, base, other = both(Budget(error), law=law)
    right = 2 * base.outputs["out"]
    other.outputs["out"][...] = right + np.float32(3.9 * error)
    assert judge_law(law, base, other) is None
    other.outputs["out"][...] = right
    other.outputs["out"][1, 2] = np.nextafter(right[1, 2] + np.float32(4.1 * error), np.float32(9))
    assert words in judge_law(law, base, other).message


@pytest.mark.parametrize("within", [0.0, 2.0])
def test_a_law_that_is_kept_to_the_last_number_needs_no_budget(within, monkeypatch):
    law, base, other = both(Budget(1e-3), law=replace(ECHO.laws[0], within=within))
    with monkeypatch.context() as m:
        m.setattr("kernel_assay.oracles.judging.laws.pair", lambda *_: pytest.fail("it was compared within its budget"))
        assert judge_law(law, base, other) is None
    other.outputs["out"][0, 3] += 9
    assert judge_law(law, base, other).rule == f"law:{law.name}"
    base.outputs["out"][4, 3] = other.outputs["out"][0, 3] = np.inf
    with monkeypatch.context() as m:
        m.setattr(
            "kernel_assay.oracles.judging.laws.pair",
            lambda *_: pytest.fail("Inf is told by the classes that are right"),
        )
        with pytest.raises(pytest.fail.Exception, match="classes"):
            judge_law(law, base, other)
