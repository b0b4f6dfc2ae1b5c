"""What is shown of a failure is what the judge saw: the same element first, the same count, the same map."""

import re
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assay.corpus.formats import FORMATS, bits_of, format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.findings import Exhibit
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner, all_laws
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.failure_detail import (
    COLUMNS,
    FEW,
    FIRST,
    LINES,
    WORST,
    exhibit,
    exhibit_of_law,
    picture,
)
from kernel_assay.oracles.judging.judge import Evidence, judge
from kernel_assay.oracles.judging.laws import judge_law
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, ZERO, Budget, Contract, Dim, Input, Law, Output

FLOATS = [f for f in FORMATS.values() if f.is_float]
SHAPES = [(), (1,), (2,), (16,), (17,), (130,), (3, 7), (33, 65), (2, 3, 5), (2, 17, 3), (1, 1, 1)]


def contract(axes, dtype, budget, *, to="", reference=np.asarray, copies=None):
    """An op that gives its input back, under any budget."""
    out = Output(axes, dtype=to) if to else Output(axes, like="x")
    return Contract(
        name="echo",
        summary="",
        dims={a: Dim(0, 1 << 12) for a in axes},
        inputs={"x": Input(axes)},
        outputs={"out": out},
        variants=({"x": dtype},),
        reference=lambda x: {"out": np.asarray(reference(x), np.float64)},
        budget=lambda q: {"out": budget(q.want["out"]) if callable(budget) else budget},
        copies=None if copies is None else lambda x: {"out": copies(x)},
    )


class Trial:
    """One execution of echo, whose output is what `output` makes of the right one."""

    def __init__(self, shape, dtype, budget, output, *, to="", distribution="normal", specials=(), **fields):
        axes = tuple("abcd"[: len(shape)])
        bitwise = isinstance(budget, Budget) and budget.bitwise
        fill = Fill(distribution=distribution, seed=3)
        recipe = TensorRecipe(shape=shape, dtype=dtype, fill=fill, specials=specials)
        self.case = Case(op="echo", tensors={"x": recipe})
        inputs = materialize_all(self.case)
        made = contract(axes, dtype, budget, to=to, copies=np.asarray if bitwise else None)
        self.reference = Reference(made, self.case, inputs)
        right = inputs["x"] if bitwise or not format_of(to or dtype).is_float else None
        if right is None:
            right = round_to(self.reference.want["out"], format_of(to or dtype))
        self.got = np.array(right, order="C")
        answer = output(self.got)
        self.got = self.got if answer is None else answer
        report = OutputReport(name="out", shape=self.got.shape, dtype=format_of(self.got.dtype).name, **fields)
        execution = Execution(status=Status.OK, subject="echo/mine", outputs=(report,))
        subject = Subject(op="echo", name="mine", backend="numpy")
        self.evidence = Evidence(self.reference, subject, execution, {"out": self.got})
        self.verdict = judge(self.reference, subject, execution, {"out": self.got})

    def shown(self):
        return exhibit(self.evidence, self.verdict, returns=False)


def told(message):
    """The place and the count that a message names."""
    place = re.search(r"\[([\d, ]*)\]", message)
    count = re.search(r"(?:\(|in )(\d+) (?:of \d+ )?elements", message)
    index = tuple(int(n) for n in place[1].split(",") if n.strip()) if place else None
    return index, int(count[1]) if count else None


def agrees(verdict, shown):
    """The exhibit says what the verdict says."""
    index, count = told(verdict.message)
    assert shown.failing == count
    assert shown.elements[0].index == index
    assert shown.elements[0].fails
    consistent(shown)


def consistent(shown):
    """Whatever is shown fits together, and can be written and read."""
    shown_again = Exhibit.model_validate_json(shown.model_dump_json())
    assert shown_again.canonical() == shown.canonical()
    size = int(np.prod(shown.shape, dtype=np.int64))
    fails = [e.fails for e in shown.elements]
    assert fails == sorted(fails, reverse=True)
    assert sum(fails) == min(shown.failing, WORST + FIRST)
    assert len(fails) == (size if size <= FEW else sum(fails))
    assert len({e.index for e in shown.elements}) == len(fails)
    assert all(len(e.index) == len(shown.shape) for e in shown.elements)
    assert all(i < n for e in shown.elements for i, n in zip(e.index, shown.shape, strict=True))
    cells = "".join(shown.picture.lines)
    assert set(cells) <= set(".123456789#")
    assert (set(cells) <= {"."}) == (shown.failing == 0)
    assert shown.picture.height * shown.picture.width == size
    if size and not shown.picture.scaled:
        assert (cells.count("#"), len(cells)) == (shown.failing, size)


def poke(*changes):
    """Puts values at flat places."""

    def output(right):
        for at, value in changes:
            right.reshape(-1)[at] = value

    return output


def at_end(value):
    return lambda right: poke((right.size - 1, value))(right)


# every kind of failure of values


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_value_beyond_its_budget(fmt, shape):
    trial = Trial(shape, fmt.name, Budget(1e-3), at_end(96.0))
    assert (trial.verdict.kind, trial.verdict.rule) == (Kind.MISMATCH, "rho")
    shown = trial.shown()
    agrees(trial.verdict, shown)
    worst = shown.elements[0]
    assert (worst.got, worst.bits, worst.bound) == (96.0, bits_of(96.0, fmt.dtype), 1e-3)
    assert worst.rho == pytest.approx(trial.verdict.rho)
    assert worst.ulps > 0
    assert (shown.shape, shown.dtype, shown.failing) == (shape, fmt.name, 1)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_value_that_had_to_be_exact(fmt, shape):
    trial = Trial(shape, fmt.name, Budget(0.0), at_end(96), distribution="small_integers")
    assert (trial.verdict.kind, trial.verdict.rule) == (Kind.MISMATCH, "exact")
    agrees(trial.verdict, trial.shown())


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_number_that_is_none(fmt, shape):
    trial = Trial(shape, fmt.name, Budget(1e-3), at_end(np.nan))
    assert (trial.verdict.kind, trial.verdict.rule) == (Kind.NONFINITE, "class")
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert np.isnan(shown.elements[0].got)
    assert (shown.elements[0].rho, shown.elements[0].ulps) == (np.inf, -1)


@pytest.mark.parametrize(("value", "wrong"), [("nan", 1.0), ("inf", np.nan), ("-inf", np.inf)])
def test_beside_what_is_wrong_special_values_that_are_right_have_no_excess(value, wrong):
    """And where a special value is due, whatever else is there is infinitely far away."""
    special = Special(value=value, place="last")
    trial = Trial((2, 3), "float32", Budget(1e-3), poke((0, 96.0)), specials=(special,))
    assert {e.index: e.rho for e in trial.shown().elements if not e.fails}[1, 2] == 0.0
    trial = Trial((2, 3), "float32", Budget(1e-3), at_end(wrong), specials=(special,))
    assert {e.index: e.rho for e in trial.shown().elements if e.fails} == {(1, 2): np.inf}


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_that_are_others(fmt, shape):
    trial = Trial(shape, fmt.name, Budget(0.0, bitwise=True), at_end(96), distribution="small_integers")
    assert "bit for bit" in trial.verdict.message
    agrees(trial.verdict, trial.shown())


@pytest.mark.parametrize("fmt", [f for f in FLOATS if f.bits < 32], ids=lambda f: f.name)
@pytest.mark.parametrize("shape", [(), (5,), (40,), (3, 30)], ids=str)
def test_a_tie_that_went_to_the_odd_neighbour(fmt, shape):
    """1 + u lies in the middle between 1 and the next number, and must become 1."""

    def odd(right):
        right[...] = 1 + 2 * fmt.unit

    tie = np.full(shape, 1 + fmt.unit, np.float32)
    trial = Trial(shape, "float32", Budget(0.0), odd, to=fmt.name, distribution="ones")
    trial.reference.__dict__["want"] = {"out": tie.astype(np.float64)}
    trial.verdict = judge(trial.reference, trial.evidence.subject, trial.evidence.execution, trial.evidence.outputs)
    assert "rounded to nearest even" in trial.verdict.message
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert shown.failing == tie.size
    assert {e.ulps for e in shown.elements} == {1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_errors_that_are_too_large_all_over(dtype):
    """The Z statistic names no element, and none is shown of a large output."""

    def shaken(right):
        steps = np.where(np.arange(right.size) % 2, 1, -1).reshape(right.shape)
        return (right.view("u2") + steps.astype(np.int16).view("u2")).view(right.dtype)

    def lenient(want):
        return Budget(np.abs(want) * 0.1, sigma=np.abs(want) * 1e-6, rows=want.size)

    trial = Trial((64, 64), dtype, lenient, shaken)
    assert trial.verdict.rule == "z"
    shown = trial.shown()
    consistent(shown)
    assert (shown.failing, shown.elements) == (0, ())
    assert len(shown.opinions) >= 4


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elements_that_were_never_written(fmt, shape):
    def leave_the_last(right):
        right.reshape(-1).view(fmt.carrier)[-1:] = fmt.carrier.type((1 << fmt.bits) - 1)

    last = int(np.prod(shape, dtype=np.int64)) - 1
    trial = Trial(shape, fmt.name, Budget(1e-3), leave_the_last, unwritten=1, first_unwritten=last)
    assert trial.verdict.kind is Kind.UNWRITTEN
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert shown.opinions == ()


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if not f.is_float], ids=lambda f: f.name)
def test_integers_that_were_never_written(fmt):
    def leave_the_last(right):
        right.reshape(-1).view(np.uint8)[-2 * fmt.bits // 8 :] = 0xFF

    trial = Trial((6, 4), fmt.name, Budget(0.0, bitwise=True), leave_the_last, unwritten=2, first_unwritten=22,
                  distribution="ones")  # fmt: skip
    agrees(trial.verdict, trial.shown())


def test_minus_one_is_not_taken_for_an_element_that_was_never_written():
    def leave_the_last(right):
        right[:5] = -1
        right[-3:] = -1

    inputs = {"distribution": "uniform"}
    trial = Trial((200,), "int8", Budget(0.0, bitwise=True), leave_the_last, unwritten=3, first_unwritten=197, **inputs)
    trial.reference.__dict__["copies"] = {"out": np.where(np.arange(200) < 5, -1, trial.reference.copies["out"])}
    assert trial.verdict.message.startswith("out[197] was never written (3 of 200")
    agrees(trial.verdict, trial.shown())


def test_an_unwritten_element_that_had_to_be_nan_comes_first():
    def leave_two(right):
        right.view("u4")[[3, 30]] = 0xFFFFFFFF

    nan = (Special(value="nan", place="one_lane"),)  # the sixth, and every 32nd from there on

    trial = Trial((40,), "float32", Budget(1e-3), leave_two, unwritten=2, first_unwritten=3, specials=nan)
    trial.reference.want["out"][3] = np.nan
    agrees(trial.verdict, trial.shown())


# the judge's worst element, where several fail in several ways


def test_a_wrong_class_comes_before_a_wrong_value_that_had_to_be_exact():
    trial = Trial((20,), "float32", Budget(0.0), poke((1, 9.0), (4, np.nan)))
    assert trial.verdict.message.startswith("out[4] is nan")
    agrees(trial.verdict, trial.shown())


@pytest.mark.parametrize("changes", [((2, -0.0), (5, 7.0)), ((0, -0.0), (1, np.nan))])
@pytest.mark.parametrize("size", [12, 20])
def test_the_first_of_other_bits_comes_first(size, changes):
    trial = Trial((size,), "float32", Budget(0.0, bitwise=True), poke(*changes), distribution="zeros")
    agrees(trial.verdict, trial.shown())


def test_a_number_where_only_nan_is_accepted_comes_before_one_of_large_rho():
    def only_nan_in_front(want):
        accept = np.full(want.shape, INTERVAL, np.uint8)
        accept[1] = NAN
        return Budget(1e-3, accept=accept)

    trial = Trial((20,), "float32", only_nan_in_front, poke((9, 50.0)))
    assert trial.verdict.message.startswith("out[1] is")
    agrees(trial.verdict, trial.shown())


@pytest.mark.parametrize("want", [2.0**53, -(2.0**60)])
def test_integers_that_float64_cannot_tell_apart(want):
    """The count of the judge and the mask of the exhibit are made by one rule."""
    trial = Trial((40,), "int64", Budget(0.0), lambda _: None)
    trial.reference.__dict__["want"] = {"out": np.full(40, want)}
    trial.got[:] = int(want)
    trial.got[7] -= 1
    e = trial.evidence
    trial.verdict = judge(trial.reference, e.subject, e.execution, e.outputs)
    agrees(trial.verdict, trial.shown())
    assert trial.shown().failing == 1


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)
def test_right_values_of_every_format_may_fail_for_another_reason(fmt):
    """Integers are no roundings of anything: no tie is looked for."""
    budget = Budget(np.where(np.arange(20) % 2, 1.0, 0.0))
    trial = Trial((20,), fmt.name, budget, poke((3, 96)), distribution="small_integers", differing=2, first_differing=4)
    assert trial.verdict.kind is Kind.NONDETERMINISTIC
    assert trial.shown().failing == 1
    trial.got[3] = trial.reference.want["out"][3]
    assert trial.shown().failing == 0


def test_what_a_mask_accepts_does_not_fail():
    def zero_is_fine(want):
        return Budget(1e-3, accept=np.full(want.shape, INTERVAL | ZERO, np.uint8))

    trial = Trial((20,), "float32", zero_is_fine, poke((3, 0.0), (7, 50.0), (8, 0.0)))
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert shown.failing == 1


def test_the_worst_come_first_and_then_the_first():
    def ramp(right):
        right[:] = right + np.arange(1, 101, dtype=right.dtype) * (np.arange(100) % 2)

    trial = Trial((100,), "float64", Budget(1e-3), ramp)
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert [e.index[0] for e in shown.elements] == [99, 97, 95, 93, 91, 89, 87, 85, 1, 3, 5, 7, 9, 11, 13, 15]
    assert shown.failing == 50


def test_an_infinite_reference_and_an_overflow():
    trial = Trial((30,), "float16", Budget(1e-3), poke((5, np.inf), (6, -np.inf)),
                  specials=(Special(value="inf", place="first"),))  # fmt: skip
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert [(e.got, e.rho) for e in shown.elements] == [(np.inf, np.inf), (-np.inf, np.inf)]


# any failure at all


WHERE = st.integers(0, 10**6)
VALUES = (0.0, -0.0, 1.0, -3.5, 96.0, 448.0, 1e5, -1e30, 1e-7, np.inf, -np.inf, np.nan)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    fmt=st.sampled_from(list(FORMATS.values())),
    shape=st.sampled_from([*SHAPES, (0,), (0, 4), (3, 0), (2, 0, 3)]),
    error=st.sampled_from([0.0, 1e-3, "each", "bits"]),
    accept=st.sampled_from([None, "some"]),
    changes=st.lists(st.tuples(WHERE, st.sampled_from(VALUES)), min_size=1, max_size=40),
    specials=st.sampled_from([(), (("nan", "last"),), (("inf", "one_lane"), ("-inf", "first"))]),
    distribution=st.sampled_from(["normal", "small_integers", "raw_bits", "log_uniform", "zeros"]),
)
def test_no_failure_is_too_strange_to_be_shown(fmt, shape, error, accept, changes, specials, distribution):
    def budget(want):
        numbers = np.arange(want.size).reshape(want.shape)
        mask = np.array([INTERVAL, INTERVAL | ZERO, NAN, INTERVAL | NAN], np.uint8)[numbers % 4] if accept else None
        return Budget(np.where(numbers % 3, 1e-3, 0.0) if error == "each" else error, accept=mask)

    def spoilt(right):
        if right.size:
            with np.errstate(all="ignore"):
                for at, value in changes:
                    right.reshape(-1)[at % right.size] = np.float64(value).astype(right.dtype)

    trial = Trial(shape, fmt.name, Budget(0.0, bitwise=True) if error == "bits" else budget, spoilt,
                  distribution=distribution if fmt.is_float else "uniform",
                  specials=tuple(Special(value=v, place=p) for v, p in specials))  # fmt: skip
    if not trial.verdict.failed:
        return
    shown = trial.shown()
    consistent(shown)
    index, count = told(trial.verdict.message)
    assert shown.failing == count
    assert shown.elements[0].index == index
    assert shown.elements[0].fails


FACES = [(0,), (0, 5), (4, 0), (2, 0, 3), (0, 3, 5)]


@pytest.mark.parametrize("shape", FACES, ids=str)
def test_an_empty_output_that_is_wrong_in_its_form(shape):
    trial = Trial(shape, "float32", Budget(1e-3), lambda _: None, alias_of="x")
    assert trial.verdict.kind is Kind.ALIASED
    shown = trial.shown()
    assert (shown.failing, shown.elements, shown.picture.lines, shown.shape) == (0, (), (), shape)


@pytest.mark.parametrize(
    "output",
    [lambda _: np.zeros((3, 4), np.float32), lambda _: np.zeros((4, 4), np.float64), lambda _: np.float32(1)[None]],
)
def test_an_output_of_another_form_is_not_compared(output):
    trial = Trial((4, 4), "float32", Budget(1e-3), output)
    assert trial.verdict.kind in {Kind.WRONG_SHAPE, Kind.WRONG_DTYPE}
    shown = trial.shown()
    assert (shown.output, shown.elements, shown.picture, shown.opinions) == ("out", (), None, ())


def test_a_subject_that_died_leaves_its_last_words():
    trial = Trial((4,), "float32", Budget(1e-3), lambda _: None)
    execution = Execution(status=Status.RAISED, subject="echo/mine", message="ValueError: no", detail="Traceback ...")
    evidence = Evidence(trial.reference, trial.evidence.subject, execution, {})
    verdict = judge(trial.reference, trial.evidence.subject, execution, {})
    shown = exhibit(evidence, verdict, returns=True)
    assert (shown.detail, shown.returns, shown.elements) == ("Traceback ...", True, ())
    assert (shown.output, shown.shape, shown.dtype) == ("out", (4,), "float32")


# bits


def bits_shown(trial):
    worst = trial.shown().elements[0]
    return worst.bits, worst.wanted_bits


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda f: f.name)
def test_the_bits_of_what_should_stand_there(fmt):
    trial = Trial((40,), fmt.name, Budget(0.0), poke((7, 2.0)), distribution="ones")
    trial.reference.want["out"][7] = 1 + fmt.unit / 2
    assert bits_shown(trial) == (bits_of(2.0, fmt.dtype), bits_of(1.0, fmt.dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_the_bits_of_integers(dtype):
    assert bits_shown(Trial((40,), dtype, Budget(0.0), poke((7, 96)), distribution="ones")) == (96, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_copy_has_to_have_the_payload_of_a_nan(dtype):
    fmt = FORMATS[dtype]
    canonical, other = fmt.nan_bits, fmt.sign_bit | fmt.nan_bits | 1

    def lose(right):
        right.view(fmt.carrier)[5] = canonical

    trial = Trial((40,), dtype, Budget(0.0, bitwise=True), lambda _: None)
    trial.reference.copies["out"].view(fmt.carrier)[5] = other
    lose(trial.got)
    e = trial.evidence
    trial.verdict = judge(trial.reference, e.subject, e.execution, e.outputs)
    assert bits_shown(trial) == (canonical, other)
    agrees(trial.verdict, trial.shown())


def test_a_sign_of_zero_is_told_by_its_bits():
    trial = Trial((40,), "float32", Budget(0.0, bitwise=True), poke((2, -0.0)), distribution="zeros")
    assert bits_shown(trial) == (1 << 31, 0)


def test_where_any_nan_would_do_no_bits_are_wanted():
    trial = Trial((40,), "float32", Budget(1e-3), poke((0, 1.0)), specials=(Special(value="nan", place="first"),))
    assert bits_shown(trial) == (0x3F800000, -1)


# distances


def ulps_shown(fmt, steps):
    def beside(right):
        right[2] = (right[2:3].view(fmt.carrier) + fmt.carrier.type(steps % (1 << fmt.bits))).view(right.dtype)[0]

    return Trial((40,), fmt.name, Budget(0.0), beside, distribution="ones").shown().elements[0].ulps


@pytest.mark.parametrize("fmt", [f for f in FLOATS if f.bits < 64], ids=lambda f: f.name)
@pytest.mark.parametrize("steps", [1, 2, 5, -3])
def test_ulps_are_steps_between_representable_numbers(fmt, steps):
    assert ulps_shown(fmt, steps) == abs(steps)


@pytest.mark.parametrize("steps", [1, -3, 200])
def test_ulps_of_float64_are_steps_too(steps):
    assert ulps_shown(FORMATS["float64"], steps) == abs(steps)


def test_ulps_across_zero():
    trial = Trial((40,), "float32", Budget(0.0), poke((2, -(2.0**-149))), distribution="zeros")
    assert trial.shown().elements[0].ulps == 1


@pytest.mark.parametrize(("dtype", "got", "steps"), [("int8", 96, 95), ("uint8", 0, 1), ("int32", -(2**31), 2**31 + 1)])
def test_ulps_of_integers_are_their_distance(dtype, got, steps):
    trial = Trial((40,), dtype, Budget(0.0), poke((7, got)), distribution="ones")
    assert trial.shown().elements[0].ulps == steps


def test_ulps_of_integers_that_are_as_far_apart_as_can_be():
    def low(right):
        right[7] = -(2**63)

    trial = Trial((40,), "int64", Budget(0.0), low, distribution="ones")
    trial.reference.want["out"][7] = 2.0**62 * 1.9
    assert trial.shown().elements[0].ulps > 2**60


def test_the_histogram_counts_every_finite_pair():
    trial = Trial((100,), "float32", Budget(0.0), poke((0, np.nan), (1, 1.0), (2, 2.0)))
    assert sum(trial.shown().ulps) == 99


# the map


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.one_of(
        st.just(()),
        st.tuples(st.integers(1, 300)),
        st.tuples(st.integers(1, 100), st.integers(1, 200)),
        st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 70)),
    ),
    share=st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.99, 1.0]),
    seed=st.integers(0, 1 << 30),
)
def test_a_map_counts_what_lies_in_its_cells(shape, share, seed):
    bad = np.random.default_rng(seed).random(shape) < share
    drawn = picture(np.asarray(bad))
    width = shape[-1] if shape else 1
    matrix = np.asarray(bad).reshape(-1, width)
    assert (drawn.height, drawn.width) == matrix.shape
    assert len(drawn.lines) <= LINES
    assert all(len(line) <= COLUMNS for line in drawn.lines)
    rows, columns = -(-drawn.height // len(drawn.lines)), -(-width // len(drawn.lines[0]))
    assert drawn.scaled == ((rows, columns) != (1, 1))
    for i, line in enumerate(drawn.lines):
        for j, cell in enumerate(line):
            part = matrix[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            if cell in ".#":
                assert part.all() == (cell == "#")
                assert part.any() == (cell == "#")
            else:
                assert 0 < part.sum() < part.size
                assert int(cell) == max(1, int(10 * part.sum() // part.size))
    assert sum(map(len, drawn.lines)) == -(-drawn.height // rows) * -(-width // columns)


def test_the_map_of_an_empty_matrix_knows_its_size():
    assert [(picture(np.zeros(s, bool)).height, picture(np.zeros(s, bool)).width) for s in ((3, 0), (0, 5))] == [
        (3, 0),
        (0, 5),
    ]
    assert not picture(np.zeros((0, 5), bool)).scaled


# what customary checks say


def opinions(shown):
    return {o.check: o for o in shown.opinions}


def blind_to(shown):
    return {o.check for o in shown.opinions if o.passes}


def test_one_wrong_element_in_many_is_seen_by_few():
    """cosine 0.9999 and the like are blind to it; allclose is not."""
    trial = Trial((4096,), "float32", Budget(1e-6), poke((77, 0.9)), distribution="normal")
    shown = trial.shown()
    agrees(trial.verdict, shown)
    near, got = trial.reference.want["out"], trial.got.astype(np.float64)
    cosine = float(near @ got / np.linalg.norm(near) / np.linalg.norm(got))
    assert 0.999 < cosine < 1
    assert float(opinions(shown)["cosine >= 0.999"].value) == pytest.approx(cosine, abs=1e-6)
    assert "cosine >= 0.999" in blind_to(shown)
    assert not any("close" in check for check in blind_to(shown))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3, 0.1, 10.0])
def test_opinions_are_those_of_the_checks_themselves(dtype, size):
    def shaken(right):
        wide = right.astype(np.float64)
        return round_to(wide * (1 + size * (np.arange(wide.size) % 3 - 1)), format_of(dtype))

    trial = Trial((600,), dtype, Budget(0.0), shaken)
    if not trial.verdict.failed:
        return
    shown = opinions(trial.shown())
    near = round_to(trial.reference.want["out"], format_of(dtype)).astype(np.float64)
    got = trial.got.astype(np.float64)
    mean = float(((got - near) ** 2).mean())
    said = {
        "cosine >= 0.999": near @ got / np.linalg.norm(near) / np.linalg.norm(got) >= 0.999,
        "NMSE <= 5e-4": ((got - near) ** 2).sum() / (near**2).sum() <= 5e-4,
        "NMSE <= 1.5 %": ((got - near) ** 2).sum() / (near**2).sum() <= 0.015,
        "PSNR >= 40 dB": 20 * np.log10(np.abs(near).max()) - 10 * np.log10(mean) >= 40 if mean else True,
    }
    assert {check: shown[check].passes for check in said} == said
    close = {c: o.passes for c, o in shown.items() if "close" in c}
    rtol, atol = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5)}.get(
        dtype, (1e-7, 1e-7)
    )
    lines = [(rtol, atol), (1e-5, 1e-8), (1e-3, 1e-5), (1e-4, 1e-4), (1e-2, 1e-2)]
    assert list(close.values()) == [np.allclose(got, near, *line) for line in lines]


def test_opinions_compare_with_the_rounded_reference():
    """Correctly rounded float8 is 8e-4 (NMSE) away from the reals, but what a check sees of it is one wrong element."""
    trial = Trial((900,), "float32", Budget(0.0), poke((3, 0.25)), to="float8_e4m3fn")
    trial.got[3] = trial.got.dtype.type(0.5 * float(trial.got[3]))
    near = round_to(trial.reference.want["out"], trial.got.dtype and format_of(trial.got.dtype)).astype(np.float64)
    nmse = ((trial.got.astype(np.float64) - near) ** 2).sum() / (near**2).sum()
    assert nmse < 4e-4
    assert float(opinions(trial.shown())["NMSE <= 5e-4"].value) == pytest.approx(nmse, rel=0.01)


def test_a_lost_sign_of_zero_is_seen_by_nobody():
    trial = Trial((40,), "float32", Budget(0.0, bitwise=True), poke((2, -0.0)), distribution="zeros")
    shown = trial.shown()
    agrees(trial.verdict, shown)
    assert blind_to(shown) == set(opinions(shown))


def test_nothing_finite_is_compared_when_classes_differ():
    trial = Trial((40,), "float32", Budget(1e-3), poke((2, np.nan)))
    shown = trial.shown()
    assert blind_to(shown) == set()
    assert opinions(shown)["cosine >= 0.999"].value == "0"


# laws


def pair(output, factor=2.0, dtype="float32", size=40):
    base = Trial((size,), dtype, Budget(1e-3), lambda _: None)
    other = Trial((size,), dtype, Budget(1e30), lambda right: output(right * right.dtype.type(factor)))
    return Law(name="scaling", transform=lambda c: c, factor=factor), base, other


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_broken_law_is_shown_with_both_sides(dtype):
    def spoilt(right):
        right[[5, 9]] = 3.0
        return right

    law, base, other = pair(spoilt, dtype=dtype)
    verdict = judge_law(law, base.evidence, other.evidence)
    assert verdict.law == "scaling"
    shown = exhibit_of_law(law, base.evidence, other.evidence, verdict, returns=True)
    agrees(verdict, shown)
    assert (shown.failing, shown.factor, shown.returns) == (2, 2.0, True)
    assert shown.partner.id == other.case.id
    assert (shown.elements[0].got, shown.elements[0].wanted) == (3.0, 2 * float(base.got[5]))
    assert all(e.bound == 0 for e in shown.elements)


# kernels that are wrong on purpose


@cache
def planted():
    subjects = [s for op in load_contracts() for s in subjects_of(op) if s.planted and s.backend == "numpy"]
    examiner = Examiner(subjects, timeout=5.0)
    return examiner, subjects


@pytest.fixture(scope="module")
def examiner():
    made, _ = planted()
    yield made
    made.__exit__(None, None, None)


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_planted_bugs_are_shown_as_they_were_judged(examiner, op):
    """Cases of the search itself: every way to fail that that are known here, law or value."""
    random = Random(f"exhibit {op}")
    cases = [generate(Target(contract_of(op), max_elements=512), random)[0] for _ in range(96)]
    requests = [CheckRequest(c, fitting(examiner.subjects.values(), c), all_laws(c)) for c in cases]
    met = {}
    for checked in examiner.check(requests):
        for key, verdict in checked.verdicts.items():
            place = (key, verdict.rule)
            if verdict.failed and len(met.setdefault(place, [])) < 2:
                met[place].append(examiner.look(checked.case, key, verdict.law))
    assert len({key for key, _ in met}) >= 3
    for looks in met.values():
        for look in looks:
            assert look.verdict.failed
            if look.verdict.kind in {Kind.MISMATCH, Kind.NONFINITE} and look.verdict.rule != "z":
                index, count = told(look.verdict.message)
                assert look.exhibit.failing == count
                assert index in {e.index for e in look.exhibit.elements}
                assert (look.exhibit.partner is not None) == bool(look.verdict.law)
            if look.exhibit.shape:
                consistent(look.exhibit)
