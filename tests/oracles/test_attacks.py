"""The judge under attack: right outputs are spoiled in every customary way, for every op, dtype and attribute.

What a loose check lets pass must earn a failing verdict here, and the output as it was must pass.
"""

from functools import cache
from random import Random

import numpy as np
import pytest

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Fill
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import NAN

LEAST = 12
"""Elements of an output that is worth spoiling."""


@cache
def scene(op, dtype):
    """A case of independent, unspecial values, its reference, and the right output."""
    random = Random(f"attack {op} {dtype}")
    contract = contract_of(op)
    for _ in range(400):
        met, _ = generate(Target(contract, (dtype,), max_elements=4096), random)
        if met.attrs.get("eps", 1.0) == 0.0:
            continue
        case = met.but(tensors={n: plain(t, i, contract.inputs[n]) for i, (n, t) in enumerate(met.tensors.items())})
        reference = Reference(contract, case, materialize_all(case))
        name, want = next(iter(reference.want.items()))
        few = np.unique(want).size < min(6, want.size // 2)
        if want.size >= LEAST and np.isfinite(want).all() and not few and want[..., -1].any() and sure(reference, name):
            return reference, name, right(reference, name)
    raise AssertionError(f"no plain case of {op} in {dtype} was met")


def sure(reference, name):
    """Whether NaN is right nowhere, as it is in a row of attention that sees no key."""
    accept = reference.budget(Numerics())[name].accept
    return accept is None or not (accept & NAN).any()


def plain(recipe, number, spec):
    """The tensor with values that are nothing special; indices and lengths stay as they are."""
    distribution = "blocks" if spec.packed else "normal" if format_of(recipe.dtype).is_float else "uniform"
    params = recipe.fill.params if spec.packed else {}
    fill = recipe.fill if spec.counts else Fill(distribution=distribution, seed=number + 1, params=params)
    return recipe.but(fill=fill, specials=(), pokes=(), layout="contiguous")


def right(reference, name):
    if reference.contract.copies is not None:
        return np.ascontiguousarray(reference.copies[name])
    fmt = format_of(reference.specs[name].dtype)
    want = reference.want[name]
    return np.ascontiguousarray(round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype))


def verdict_on(reference, name, output, **report):
    subject = Subject(op=reference.case.op, name="mine", backend="numpy")
    told = OutputReport(**{"name": name, "shape": output.shape, "dtype": output.dtype.name, **report})
    execution = Execution(status=Status.OK, subject=subject.key, outputs=(told,))
    with np.errstate(all="ignore"):
        return judge(reference, subject, execution, {name: output})


PAIRS = [
    (op, dtype)
    for op, contract in sorted(load_contracts().items())
    for dtype in dict.fromkeys(next(iter(v.values())) for v in contract.variants)
]
pairs = pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=[f"{op}-{dtype}" for op, dtype in PAIRS])


def flat(output):
    return output.reshape(-1)


def all_nan(out, _):
    out[...] = np.nan


def all_zero(out, _):
    out[...] = 0


def last_element(out, _):
    flat(out)[-1:] = flat(out)[-1:] * 2 + 1


def last_tile(out, _):
    out[..., -max(1, out.shape[-1] // 4) :] = 1e3 if format_of(out.dtype).bits > 8 else 100


def one_nan(out, _):
    flat(out)[out.size // 2] = np.nan


def one_inf(out, _):
    flat(out)[out.size // 3] = np.inf


def sign(out, _):
    out[...] = -out


def half(out, _):
    out[...] = out / 2


def stale(out, _):
    """What an earlier call left: the results of other rows."""
    out[...] = np.roll(out, 1, axis=0) if out.shape[0] > 1 else np.roll(out, 1, axis=-1)


def shifted_columns(out, _):
    out[...] = np.roll(out, 1, axis=-1)


FLOATS_ONLY = {all_nan, one_nan, one_inf}
ATTACKS = [all_nan, all_zero, last_element, last_tile, one_nan, one_inf, sign, half, stale, shifted_columns]


@pairs
def test_what_is_right_passes(op, dtype):
    reference, name, output = scene(op, dtype)
    assert verdict_on(reference, name, output).kind is Kind.PASS


@pairs
@pytest.mark.parametrize("attack", ATTACKS, ids=[a.__name__ for a in ATTACKS])
def test_what_is_spoiled_does_not(op, dtype, attack):
    reference, name, output = scene(op, dtype)
    spoiled = output.copy()
    if attack in FLOATS_ONLY and not format_of(output.dtype).is_float:
        pytest.skip("integers have no such values")
    with np.errstate(all="ignore"):
        attack(spoiled, None)
    if spoiled.tobytes() == output.tobytes():
        pytest.skip("it changes nothing here")
    assert verdict_on(reference, name, spoiled).kind in {Kind.MISMATCH, Kind.NONFINITE}


@pairs
def test_one_element_just_beyond_its_budget_is_seen(op, dtype):
    reference, name, output = scene(op, dtype)
    fmt = format_of(output.dtype)
    budget, want = reference.budget(Subject(op=op, name="m", backend="n").numerics)[name], reference.want[name]
    at = int(np.argmax(np.abs(flat(want))))
    error = float(np.broadcast_to(np.asarray(budget.error, np.float64), want.shape).reshape(-1)[at])
    target = np.asarray(flat(want)[at] + np.copysign(1.01 * error, flat(want)[at]))
    beyond = round_to(target, fmt) if fmt.is_float else np.asarray(target + 1, fmt.dtype)
    spoiled = output.copy()
    if fmt.is_float:  # two steps on: the cell of the first may still touch the budget
        beyond = step(step(np.asarray(beyond, fmt.dtype)))
    flat(spoiled)[at] = beyond
    if reference.contract.choices is not None:
        pytest.skip("several answers are right")
    assert verdict_on(reference, name, spoiled).kind in {Kind.MISMATCH, Kind.NONFINITE}


def step(value):
    """The next number away from zero."""
    bits = value.view(format_of(value.dtype).carrier)
    return (bits + bits.dtype.type(1)).view(value.dtype)


@pairs
def test_matching_infinities_do_not_hide_garbage(op, dtype):
    """A metric that is NaN, because Inf - Inf is, must not pass for small."""
    reference, name, output = scene(op, dtype)
    if not format_of(output.dtype).is_float or not format_of(output.dtype).has_inf:
        pytest.skip("it has no infinities")
    spoiled = output.copy()
    flat(spoiled)[:1] = np.inf
    assert verdict_on(reference, name, spoiled).kind in {Kind.MISMATCH, Kind.NONFINITE}
    flat(spoiled)[-2:] = 77
    assert verdict_on(reference, name, spoiled).kind in {Kind.MISMATCH, Kind.NONFINITE}


@pairs
def test_form_decides_before_values(op, dtype):
    reference, name, output = scene(op, dtype)
    cut = np.ascontiguousarray(flat(output)[:-1])
    assert verdict_on(reference, name, cut).kind is Kind.WRONG_SHAPE
    assert verdict_on(reference, name, flat(output)[:0]).kind is Kind.WRONG_SHAPE
    other = "float64" if output.dtype != np.float64 else "float32"
    assert verdict_on(reference, name, output.astype(other)).kind is Kind.WRONG_DTYPE
    unwritten = {"unwritten": 1, "first_unwritten": output.size - 1}
    assert verdict_on(reference, name, output, **unwritten).kind is Kind.UNWRITTEN
