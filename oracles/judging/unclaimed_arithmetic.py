"""Claims that nobody made: which arithmetic, if it were declared, would make right what fails.

A kernel that rounds on the way looks like one with a bug, until it says so. A claim is named if the whole output of
every case is right under it, and if it says something: beside the numbers that fail its budget is small in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import EVERY, INPUT, Numerics
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.oracles.judging.judge import Evidence, judge, value_failures
from kernel_assay.oracles.spec.axes import shape_of
from kernel_assay.oracles.spec.contract import ALL, Contract, Reals

SAYING = 0.125
"""Of an output's largest number: a budget larger than that excuses anything."""
AS_FAR = 4.0
"""How many times the error of a reference itself, in 16 bits, that of a kernel may be that rounds as it does."""
TRIALS = 4
"""Cases beside those that fail, for a claim that fits two of them by chance."""
LENGTHS, FEW, MOST_ELEMENTS = (4096, 512, 256, 128, 64), 4, 1 << 14
"""Lengths of sums that are tried, the first with which there are no more elements, and how many sums."""

_WORDS = {
    "accumulate": "sums in {}",
    "tf32": "operands in tf32 ({})",
    "exp": "a {} exp",
    "tanh": "an {} tanh",
    "fast_math": "fast math",
    "order": "sums in {} order, as atomic operations make them",
}


def would_excuse(verdict: Verdict) -> bool:
    """Whether a claim is about such a failure at all: one of values, or of the order in which they are summed."""
    about = verdict.kind.facts.of_values or verdict.kind is Kind.NONDETERMINISTIC
    return about and not verdict.law and not verdict.shares


def trials(contract: Contract, case: Case) -> list[Case]:
    """Plain cases: the same recipes, or normal numbers where any will do, without special values.

    Half of them have the same shapes; the others have longer sums, of numbers of one sign and of ones: these grow, and
    with them what each addition loses, which tells a narrow accumulator from few roundings.
    """
    shapes = [case] * (TRIALS // 2) + [_longer(contract, case)] * (TRIALS - TRIALS // 2)
    return [
        one.but(tensors={n: _plain(contract, n, t, trial) for n, t in one.tensors.items()})
        for trial, one in enumerate(shapes)
    ]


def _longer(contract: Contract, case: Case) -> Case:
    """The case with dims that are no independent parts of it as long as is cheap, and few of such parts."""
    dims, attrs = contract.dims_of(case), contract.attrs_of(case)
    parts = {d: contract.dims[d] for d in contract.separable if contract.dims[d].multiple == 1}
    dims |= {d: max(min(dims[d], FEW), dim.low) for d, dim in parts.items()}
    for extent in LENGTHS:
        own = {d: contract.dims[d] for d in dims if d not in contract.separable}
        wider = {d: max(dims[d], min(extent, dim.most) // dim.multiple * dim.multiple) for d, dim in own.items()}
        shapes = {n: shape_of(contract.inputs[n].axes, {**dims, **wider}, attrs) for n in case.tensors}
        if sum(map(math.prod, shapes.values())) <= MOST_ELEMENTS:
            longer = {n: t.but(shape=shapes[n], origin=(), pokes=()) for n, t in case.tensors.items()}
            return case.but(tensors=longer)
    return case


def _plain(contract: Contract, name: str, tensor: TensorRecipe, trial: int) -> TensorRecipe:
    spec = contract.inputs[name]
    free = not (spec.distributions or spec.counts or spec.packed or spec.ranged)
    drawn = (*("normal",) * TRIALS, "positive", "ones")[trial + 2]
    fill = tensor.fill.but(distribution=drawn, scale=1.0, params=spec.params({}, {})) if free else tensor.fill
    return tensor.but(fill=fill.but(seed=trial + 1), specials=(), pokes=())


def unclaimed(cases: Sequence[Evidence], others: Callable[[], Sequence[Evidence]]) -> str:
    """The first claim that explains all cases, which fail, and the others, as a sentence; empty: none does."""
    first, rest = cases[0], cache(others)
    contract, subject = first.reference.contract, first.subject
    for numerics in candidates(contract, subject.numerics, first.reference.case.dtype):
        own = contract.estimated and EVERY in numerics.intermediates
        says = all(map(_own_arithmetic, cases)) if own else any(_says(e, numerics) for e in cases)
        failing = says and all(_explains(e, numerics) for e in cases)
        if failing and all(_explains(e, numerics) for e in rest()):
            more = numerics.model_dump(exclude_defaults=True)
            constant = f"numerics = {_toml(more)}" if subject.backend == "cuda" else f"NUMERICS = {more}"
            words = _described(contract, subject.numerics, numerics, first.reference.case.dtype)
            alike = ", as the reference itself in torch is" if own else ""
            return f"consistent with {words}{alike}: declare {constant}, if that is intended"
    return ""


def candidates(contract: Contract, said: Numerics, dtype: str) -> Iterator[Numerics]:
    """Arithmetics one step beyond what is said, those that excuse least first.

    Of float64 nothing narrower than float32 is supposed, which is what a kernel that widens its inputs so computes in.
    """
    yield said.but(order="any")
    if contract.estimated:
        yield from _of_estimated(contract, said, dtype)
        return
    narrower = {16: (INPUT,), 32: ("float16", "bfloat16"), 64: ("float32",)}[max(16, format_of(dtype).bits)]
    if dtype == "float64":
        yield _also(said, {EVERY: "float32"})
    if "log" in contract.intermediates:
        yield _also(said, {"log": "float32"})
    single = {"exp": ("fast",), "tanh": ("approx",), "tf32": ("rn", "rz") if dtype == "float32" else ()}
    yield from (said.but(**{key: value}) for key, values in single.items() for value in values)
    names = tuple(name for name in contract.intermediates if name != "log")
    for narrow in narrower:
        yield from (_also(said, {name: narrow}) for name in names)
        yield _also(said, dict.fromkeys(names, narrow))
        if dtype == "float32":
            yield from (said.but(accumulate=sums) for sums in ("hopper", narrow))
    if dtype == "float64":
        return
    yield said.but(accumulate="hopper")
    if dtype == "float32":
        yield said.but(fast_math=True, ftz=True)
    for narrow in (dtype,) if format_of(dtype).bits == 16 else ("float16", "bfloat16"):
        yield said.but(accumulate=narrow)
        yield _also(said, {EVERY: narrow})
        yield _also(said.but(accumulate=narrow), {EVERY: narrow})
    if "log" in contract.intermediates:
        yield _also(said, {"log": INPUT})
        yield _also(said, dict.fromkeys(contract.intermediates, INPUT))


def _of_estimated(contract: Contract, said: Numerics, dtype: str) -> Iterator[Numerics]:
    """Another formula, or the arithmetic in which the reference itself fails.

    No other type: such a budget follows the coarsest one, which would excuse what is left out.
    """
    if "log" in contract.intermediates:
        yield _also(said, {"log": "float64" if dtype == "float64" else "float32"})
    if format_of(dtype).bits == 16 and EVERY not in said.intermediates:
        yield _also(said, {EVERY: INPUT})


def _own_arithmetic(e: Evidence) -> bool:
    """Whether the reference itself, run in the dtypes of the inputs, fails as well, and is about as far off."""
    elsewhere = e.reference.contract.elsewhere
    made = elsewhere.native(e.reference.case) if elsewhere is not None else {}
    if made.keys() != e.outputs.keys() or any(x.shape != e.outputs[name].shape for name, x in made.items()):
        return False
    with np.errstate(all="ignore"):
        outputs = {name: x.astype(e.outputs[name].dtype) for name, x in made.items()}
        return would_excuse(judge(e.reference, e.subject, e.execution, outputs)) and all(
            _off(got, e.want(name)) <= AS_FAR * _off(outputs[name], e.want(name)) for name, got in e.outputs.items()
        )


def _off(got: Array, want: Reals) -> float:
    """The largest error; Inf where one of both is no number and the other is another thing."""
    wide = got.astype(np.float64)
    error = np.where((wide == want) | (np.isnan(wide) & np.isnan(want)), 0.0, np.abs(wide - want))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))


def _also(said: Numerics, more: dict[str, str]) -> Numerics:
    return said.but(intermediates={**said.intermediates, **more})


def _explains(e: Evidence, numerics: Numerics) -> bool:
    """Whether all is right under a claim, or the case is none for the subject."""
    verdict = judge(e.reference, e.subject.but(numerics=numerics), e.execution, e.outputs)
    return verdict.kind in {Kind.PASS, Kind.UNSUPPORTED}


def _says(e: Evidence, numerics: Numerics) -> bool:
    """Whether the budgets of what fails are small."""
    with np.errstate(all="ignore"):
        return all(_is_small(e, name, numerics) for name in e.outputs)


def _is_small(e: Evidence, name: str, numerics: Numerics) -> bool:
    budget, want = e.reference.budget(numerics)[name], e.want(name)
    bad = value_failures(e, name)
    error = np.broadcast_to(np.asarray(budget.error, np.float64), want.shape)[bad]
    free = budget.accept is not None and bool((np.broadcast_to(budget.accept, want.shape)[bad] == ALL).any())
    normal = format_of(e.outputs[name].dtype).tiny  # below it, what is lost is no matter of the claim
    largest = np.abs(want[np.isfinite(want)]).max(initial=normal)
    return not free and bool((error <= SAYING * largest).all())


def _described(contract: Contract, said: Numerics, claimed: Numerics, dtype: str) -> str:
    """Words for a claim."""
    changed = {key: value for key, value in claimed.model_dump().items() if value != getattr(said, key)}
    more = {name: t for name, t in changed.pop("intermediates", {}).items() if said.intermediates.get(name) != t}
    if EVERY in more:
        return f"{claimed.intermediate(EVERY, dtype)} arithmetic"
    rounded = [f"{dtype if t == INPUT else t} for {contract.intermediates[name]}" for name, t in more.items()]
    return " and ".join([*rounded, *(_WORDS[key].format(value) for key, value in changed.items() if key != "ftz")])


def _toml(value: Any) -> str:
    """An inline table of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
