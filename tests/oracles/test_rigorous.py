"""Every reference against ball arithmetic, and close calls that are decided by it."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from flint import ctx

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging import arbiter, measure_numpy
from kernel_assay.oracles.judging.failure_detail import exhibit
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.estimate import widened
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.axes import shape_of
from kernel_assay.oracles.spec.balls import Ball, ball, balls, beyond, cell, dot, excess, total, working
from kernel_assay.oracles.spec.contract import INTERVAL, Budget

CARELESS = np.errstate(all="ignore")
FLOATS = [f for f in FORMATS.values() if f.is_float]

# ---- the reference of every op ---------------------------------------------------------------------------------------

WITHOUT = {
    "embedding": "it copies bits: every bit is compared, and nothing is rounded",
    "quantize": "a byte of a block is no rounded number, and several may be right",
    "row_argmax": "a place is no rounded number, and several may be right",
}
"""Ops without an element, and why."""
SHARE = 1 / 16
"""Of the budget: how much of it the reference may use up itself."""
SHAPES, LONG = (7, 32), {"cols", "k", "keys"}
"""Extents of these dims; the others are small."""
PACKED = ("blocks", "exact_blocks", "wild_blocks")
OFTEN = ("normal", "uniform", "positive", "wide", "offset", "cancellation", "constant_rows", "huge_row")
OFTEN += (*PACKED, "small_integers", "powers_of_two", "exact_integers", "unit_steps", "zeros", "log_uniform")


MOST = 160
"""Cases per op and dtype, drawn from all combinations."""
SOME = 30
"""Elements per case."""


def recipes(contract, variant, attrs, often, extent, full):
    """The tensors of one case: as many as possible filled with a distribution, with seeds of their own."""
    dims = {name: extent if name in LONG else 3 for name in contract.dims}
    for seed, (name, spec) in enumerate(contract.inputs.items(), 10 * extent):
        if name in contract.optional and not full:
            continue
        some = DISTRIBUTIONS[often]
        fits = some.floats if format_of(variant[name]).is_float else some.integers
        usual = "uniform" if spec.counts or not fits else often
        known = spec.distributions or (PACKED if spec.packed else (usual,))
        fill = Fill(distribution=often if often in known else known[0], seed=seed, params=spec.params(dims, attrs))
        yield name, TensorRecipe(shape=shape_of(spec.axes, dims, attrs), dtype=variant[name], fill=fill)


def cases_of(contract, variant):
    """With and without what is optional, with all values of the attributes."""
    full = (True, False) if set(contract.inputs) & set(contract.optional) else (True,)
    forms = list(itertools.product(itertools.product(*contract.attrs.values()), OFTEN, SHAPES, full))
    for values, *form in random.Random(1).sample(forms, min(MOST, len(forms))):
        attrs = dict(zip(contract.attrs, values, strict=True))
        yield Case(op=contract.name, tensors=dict(recipes(contract, variant, attrs, *form)), attrs=attrs)


def exactly(x):
    """A longdouble has no format of its own."""
    if not isinstance(x, np.longdouble):
        return ball(x)
    mantissa, exponent = np.frexp(x)
    high = float(mantissa)
    return (Ball(high) + Ball(float(mantissa - np.longdouble(high)))) * Ball((1, int(exponent)))


class Answer:
    """What a reference says to one case, before it becomes float64, and after."""

    def __init__(self, contract, case):
        self.contract, self.case, self.inputs = contract, case, materialize_all(case)
        self.reference = Reference(contract, case, self.inputs)
        self.want = self.reference.want["out"]
        wide = {name: widened(values, np.longdouble) for name, values in self.inputs.items()}
        self.raw = np.asarray(contract.reference(**wide, **case.attrs)["out"])
        budget = self.reference.budget(Numerics(ftz=False))["out"]
        self.error = np.broadcast_to(np.asarray(budget.error, np.float64), self.want.shape)
        accept = INTERVAL if budget.accept is None else budget.accept
        self.judged = np.isfinite(self.want) & np.isfinite(self.error) & (np.asarray(accept) == INTERVAL)
        self.format = format_of(self.reference.specs["out"].dtype)

    def elements(self):
        """Elements of which only a number can be right, with their true values."""
        places = list(zip(*np.nonzero(self.judged), strict=True))
        for index in random.Random(2).sample(places, min(SOME, len(places))):
            true = self.contract.element(self.inputs, self.case.attrs, tuple(map(int, index)))
            if not abs(true) > np.finfo(np.float64).max:  # a reference ends there (oracles.numerics.bounds.saturated)
                yield index, true

    def share(self, index, true):
        """How much of the budget the reference is off by; exact answers must round as the true value does."""
        error = self.error[index]
        if error > 0:
            away = abs(exactly(self.raw[index]) - true)
            least = 0 if self.raw.dtype == np.longdouble else Ball((1, -1074))  # far below all narrower formats
            return float(((away - least).max(Ball(0)) / ball(error)).upper())
        y = (
            round_to(self.want[index], self.format)
            if self.format.is_float
            else self.want[index].astype(self.format.dtype)
        )
        return 0.0 if beyond(y[()], true, 0.0) is False else math.inf

    def narrowed(self, index, true):
        """Whether the rounding to float64 adds half an ulp at most."""
        room = ball(self.error[index]) * SHARE + abs(true) * 2.0**-53 + Ball((1, -1075))
        return bool(abs(ball(self.want[index]) - true) <= room)


OPS = [(op, i) for op, contract in load_contracts().items() if op not in WITHOUT for i in range(len(contract.variants))]


def test_every_op_has_an_element_or_a_reason():
    assert {op for op, contract in load_contracts().items() if contract.element is None} == set(WITHOUT)


@pytest.mark.parametrize(("op", "variant"), OPS, ids=str)
@CARELESS
def test_the_reference_is_right(op, variant):
    contract, seen = contract_of(op), 0
    worst = (0.0, "")
    with working(512):
        for case in cases_of(contract, contract.variants[variant]):
            answer = Answer(contract, case)
            for index, true in answer.elements():
                seen += 1
                assert answer.narrowed(index, true), (case.label, index)
                worst = max(worst, (answer.share(index, true), f"{case.label} {case.attrs} {index}"))
    assert seen > 20
    assert worst[0] <= SHARE, worst


@CARELESS
def test_a_reference_in_float32_would_be_noticed():
    def reference(x):
        return {"out": (x.astype(np.float32) / (1 + np.exp(-x.astype(np.float32)))).astype(np.float64)}

    contract = replace(contract_of("silu"), reference=reference)
    with working(512):
        answers = [Answer(contract, case) for case in cases_of(contract, {"x": "float16"})]
        shares = [max(a.share(index, true) for index, true in a.elements()) for a in answers]
    assert max(shares) > SHARE


def test_masked_rows_of_a_softmax_are_followed():
    recipe = TensorRecipe(shape=(12, 9), dtype="float32", fill=Fill(distribution="masked_rows", seed=3))
    with CARELESS, working(256):
        answer = Answer(contract_of("softmax"), Case(op="softmax", tensors={"x": recipe}, attrs={}))
        shares = [answer.share(index, true) for index, true in answer.elements()]
    assert len(shares) > 20
    assert max(shares) <= SHARE


# ---- balls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)
@CARELESS
def test_every_number_becomes_a_ball_of_its_own(fmt):
    bits = np.arange(256) if fmt.bits == 8 else np.random.default_rng(1).integers(0, 1 << 63, 200)
    values = np.asarray(bits, np.int64).astype(fmt.carrier).view(fmt.dtype)
    for value, found in zip(values, balls(values), strict=True):
        alone = ball(value)
        if np.isnan(np.float64(value)):
            assert alone.is_nan()
            assert found.is_nan()
        else:
            assert alone.is_exact()
            assert alone == found == (int(value) if not fmt.is_float else float(value))


def test_sums_are_rigorous_and_of_nothing_zero():
    row = balls(np.float32([1e8, 1, -1e8]))
    assert total(row) == 1
    assert dot(row, row).contains(20000000000000001)
    with working(64):
        assert dot(row, row) == 20000000000000001
    assert total([]).is_zero()
    with pytest.raises(ValueError, match="zip"):
        dot(row, row[1:])


def test_precision_is_local():
    def fail():
        with working(300):
            assert ctx.prec == 300
            raise KeyError

    before = ctx.prec
    with pytest.raises(KeyError):
        fail()
    assert ctx.prec == before


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
@CARELESS
def test_a_cell_is_that_of_the_judge(fmt):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 1 << 63, 400).astype(fmt.carrier).view(fmt.dtype)
    y = np.concatenate([y, np.asarray([0.0, -0.0, 1.0, -2.0, fmt.max, fmt.tiny, fmt.eta, np.inf]).astype(fmt.dtype)])
    near = np.where(np.isfinite(y.astype(np.float64)), y.astype(np.float64), fmt.max)
    r = np.clip(near * (1 + rng.uniform(-4, 4, y.size) * fmt.unit), -np.finfo(np.float64).max, np.finfo(np.float64).max)
    for got, want, measured in zip(
        y, r, measure_numpy.cell_excess(y, r, measure_numpy.facts_of(fmt.name)), strict=True
    ):
        with working(128):
            apart = excess(got, ball(want))
        if np.isnan(measured):
            assert apart == Ball.pos_inf()
        elif np.isfinite(measured):  # the threshold of overflow of float64 is no float64
            assert max(float(apart), 0.0) == pytest.approx(measured, rel=1e-12, abs=2.0**-1074)


def test_cells_touch_and_narrow_below_powers_of_two():
    fmt = format_of("float16")
    low, high = cell(1.0, fmt)
    assert (low, high) == (1 - 2.0**-12, 1 + 2.0**-11)
    assert cell(-1.0, fmt) == (-high, -low)
    assert cell(1 - 2.0**-11, fmt)[1] == low
    assert cell(0.0, fmt) == (-(2.0**-25), 2.0**-25)
    assert cell(2.0**-14, fmt)[0] == 2.0**-14 - 2.0**-25, "subnormal numbers lie as close as the smallest normal ones"


@working(128)
def test_a_comparison_has_three_answers():
    y = np.float32(1.0)
    edge = 1 + Ball(2.0**-24)
    assert beyond(y, edge, 0.0) is False
    assert beyond(y, edge + Ball(2.0**-60), 0.0) is True
    assert beyond(y, edge + Ball(2.0**-60), 2.0**-60) is False
    assert beyond(y, edge + Ball(0, 2.0**-60), 0.0) is None
    assert beyond(y, Ball.nan(), 1.0) is None
    assert beyond(np.float32(np.nan), edge, 1e30) is True
    assert beyond(np.int32(7), Ball(8), 1.0) is False
    assert beyond(np.int32(7), Ball(8), 0.5) is True
    assert beyond(np.float16(np.inf), Ball(65519), 0.5) is True
    assert beyond(np.float16(np.inf), Ball(65519), 1.0) is False
    assert beyond(np.float16(-np.inf), Ball(65519), 1.0) is True


# ---- the arbiter -----------------------------------------------------------------------------------------------------

STEP = 2.0**-21
"""One ulp of the numbers from 5 to 7 that are copied here."""
E = 2.0 * STEP
"""The budget of every element."""


def past(times):
    """How far a reference must be off so that a right output seems to be so many times its budget off."""
    return times * E + STEP / 2


class Trial:
    """float32 numbers that are to be copied within a budget; the reference may be off, in any element."""

    def __init__(self, count=12, off=(), element=lambda inputs, attrs, index: ball(inputs["x"][index]), **changes):
        recipe = TensorRecipe(shape=(1, count), dtype="float32", fill=Fill(distribution="positive", seed=4))
        self.case = Case(op="silu", tensors={"x": recipe}, attrs={})
        self.x = {"x": materialize_all(self.case)["x"] * np.float32(2) + np.float32(5)}
        shifts = np.zeros((1, count))
        shifts[0, : len(off)] = off
        changes.setdefault("budget", lambda q: {"out": Budget(E)})
        contract = replace(contract_of("silu"), reference=lambda x: {"out": x + shifts}, element=element, **changes)
        self.reference = Reference(contract, self.case, self.x)
        self.subject = Subject(op="silu", name="mine", backend="numpy")
        self.out = self.x["x"].copy()
        report = OutputReport(name="out", shape=self.out.shape, dtype="float32")
        self.execution = Execution(status=Status.OK, subject="silu/mine", outputs=(report,))

    def __call__(self):
        return judge(self.reference, self.subject, self.execution, {"out": self.out})

    def exhibit(self, verdict):
        return exhibit(Evidence(self.reference, self.subject, self.execution, {"out": self.out}), verdict, returns=True)


def rigorous(verdict):
    return next((m for m in verdict.measurements if m.metric == "rho_rigorous"), None)


def undecided(inputs, attrs, index):
    return ball(inputs["x"][index]) + Ball(0, 1e-3)


def never(inputs, attrs, index):
    raise AssertionError


def test_a_reference_that_is_a_bit_wrong_condemns_nobody():
    trial = Trial(off=[past(1.5), past(0.2)])
    verdict = trial()
    assert (verdict.kind, verdict.measurements, verdict.message) == (Kind.PASS, (), "")
    assert 0.0 <= verdict.rho <= 1.0
    trial = Trial(off=[past(1.5)], element=None)
    assert (trial().kind, trial().rule) == (Kind.MISMATCH, "rho"), "without an element the reference decides"
    assert rigorous(trial()) is None


def test_rho_of_what_is_let_go_is_that_of_the_others():
    trial = Trial(off=[past(1.5), past(0.25), -past(0.125)])
    assert trial().rho == pytest.approx(0.25)


def test_a_wrong_output_is_confirmed():
    trial = Trial()
    trial.out[0, 5] += 4 * STEP
    verdict = trial()
    assert (verdict.kind, verdict.rule, verdict.signature.rule) == (Kind.MISMATCH, "rho", "rho")
    assert "out[0, 5] is" in verdict.message
    assert "1.75 times its error budget of 9.54e-07, confirmed in ball arithmetic (1 of 12" in verdict.message
    found = rigorous(verdict)
    assert (found.value, found.limit, found.index) == (verdict.rho, 1.0, (0, 5))
    assert found.wanted == trial.x["x"][0, 5]
    assert verdict.measurements[0].metric == "rho"
    assert trial.exhibit(verdict).failing == 1


def test_the_worst_that_is_really_wrong_decides():
    trial = Trial(off=[past(1.9), past(1.8)])
    trial.out[0, 7] += 3 * STEP
    verdict = trial()
    assert verdict.kind is Kind.MISMATCH
    assert "out[0, 7] is" in verdict.message
    assert verdict.rho == pytest.approx(1.25)


@pytest.mark.parametrize(("count", "kind"), [(256, Kind.PASS), (257, Kind.INCONCLUSIVE)])
def test_not_everything_is_examined(count, kind):
    verdict = Trial(300, off=[past(1.5)] * count)()
    assert (verdict.kind, verdict.failed, verdict.signature) == (kind, False, None)
    if kind is Kind.INCONCLUSIVE:
        assert "the 256 worst of 257 failing elements do not fail in ball arithmetic" in verdict.message


def test_one_that_is_really_wrong_is_found_among_many():
    trial = Trial(300, off=[past(1.5)] * 255)
    trial.out[0, 299] += 3 * STEP
    assert trial().kind is Kind.MISMATCH


def test_what_nobody_can_tell_is_no_finding():
    trial = Trial(off=[past(1.5)], element=undecided)
    verdict = trial()
    assert (verdict.kind, verdict.failed, verdict.signature) == (Kind.INCONCLUSIVE, False, None)
    assert "out is off by 1.5 times its error budget, but 1 of its elements" in verdict.message
    assert "512 bits" in verdict.message
    assert Trial(off=[past(0.9)], element=undecided)().kind is Kind.PASS, "no proof against it"


def test_doubts_end_an_examination():
    asked = []

    def element(inputs, attrs, index):
        asked.append(index)
        return undecided(inputs, attrs, index)

    assert Trial(100, off=[past(1.5)] * 100, element=element)().kind is Kind.INCONCLUSIVE
    assert len(asked) == arbiter.DOUBTS * len(arbiter.PRECISIONS)


def test_more_precision_is_tried_before_giving_up():
    asked = []

    def element(inputs, attrs, index):
        asked.append(ctx.prec)
        lost = Ball(0, 2.0 ** (300 - ctx.prec))  # a formula that loses 300 bits
        return ball(inputs["x"][index]) + lost

    assert Trial(off=[past(1.5)], element=element)().kind is Kind.PASS
    assert asked == list(arbiter.PRECISIONS)


def test_a_pass_by_a_wrong_reference_is_none():
    trial = Trial(off=[1.2 * STEP])
    trial.out[0, 0] += 3 * STEP
    verdict = trial()
    assert (verdict.kind, verdict.rule) == (Kind.MISMATCH, "rho")
    assert (
        "1.25 times its error budget of 9.54e-07, confirmed in ball arithmetic (1 of 12 elements fail)"
        in verdict.message
    )
    assert rigorous(verdict).index == (0, 0)
    shown = trial.exhibit(verdict)
    assert shown.failing == 1
    assert next(e for e in shown.elements if e.fails).index == (0, 0)


def test_a_pass_stays_one_if_its_worst_element_is_right():
    trial = Trial(off=[past(0.75)])
    verdict = trial()
    assert verdict.kind is Kind.PASS
    assert verdict.rho == pytest.approx(0.75)


@pytest.mark.parametrize("off", [past(2.5), past(0.4)])
def test_what_is_clear_is_not_arbitrated(off):
    trial = Trial(off=[off], element=never)
    assert trial().kind is (Kind.MISMATCH if off > past(1) else Kind.PASS)


@CARELESS
def test_classes_and_exact_rules_are_not_arbitrated():
    trial = Trial(off=[past(1.5)], element=never)
    trial.out[0, 3] = np.nan
    assert trial().kind is Kind.NONFINITE
    trial = Trial(element=never, budget=lambda q: {"out": Budget(0.0)})
    trial.out[0, 3] = np.nextafter(trial.out[0, 3], np.float32(9))
    assert (trial().kind, trial().rule) == (Kind.MISMATCH, "exact")


@pytest.mark.parametrize(("origin", "error"), [("", InternalError), ("/mine/op.py", UsageError)])
def test_an_element_that_fails_is_the_fault_of_its_contract(origin, error):
    with pytest.raises(error, match=r"element \[0, 0\] fails on silu .* \(AssertionError"):
        Trial(off=[past(1.5)], element=never, origin=origin)()


def test_plain_numbers_will_do_for_an_element():
    assert Trial(off=[past(1.5)], element=lambda inputs, attrs, index: float(inputs["x"][index]))().kind is Kind.PASS
