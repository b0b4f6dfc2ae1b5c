"""Learn from the neighbours of a smallest case when it fails: `fails only if cols % 32 != 0`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from corpus.records import Case, Kind
from fuzz.choices import MAX_ELEMENTS, learn_choices
from fuzz.moves import livelier, with_dims
from fuzz.shrinking import SEED_TRIALS, Shrinker, is_dear
from oracles.catalog import contract_of

TILES = (2, 4, 8, 16, 32, 64, 128, 256)
AT_ONCE = 16
"""Cases, between two looks at the clock."""
GROWN, GROWN_ELEMENTS = (33, 17, 9, 5), 1 << 14
"""Extents of the other dims with which a rule is tried, the first with which there are no more elements."""
REACH = 36
"""Neighbours on either side; enough to tell every modulus up to 32."""
REACH_OF_CRASHES = 9
"""The same where each costs a worker."""
UNTRIED = frozenset({Kind.TIMEOUT, Kind.OUT_OF_MEMORY})
"""Kinds of which each try takes long."""


def learn_gates(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    """One sentence for everything that decides whether the case fails: a size, an attribute, a layout.

    None if values decide it, which may not be so of a smaller case as it was of the first.
    original: the case it was found with, which a rule must not contradict.
    """
    shrinker.grant(original)
    if shrinker.target.kind in UNTRIED or (not shrinker.examiner.is_large(case) and shrinker.hits(case) < SEED_TRIALS):
        return ()
    return (*_learn_sizes(shrinker, case, original), *learn_choices(shrinker, case, original))


def _learn_sizes(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    contract = contract_of(case.op)
    dims, before = contract.dims_of(case), contract.dims_of(original)
    found = []
    for dim, extent in dims.items():
        if shrinker.expired():
            break
        near = _few_neighbours(extent) if is_dear(shrinker.target) else _neighbours(extent)
        fails = _fails(shrinker, case, dim, near)
        fails.setdefault(extent, True)  # it may lie beyond the range, as shapes of language models do
        if fails.setdefault(before[dim], True) and explain(dim, fails):
            # Plain values may hide it, as ones do what a mean leaves out, and so may other extents that are small.
            for other in (original, livelier(case), livelier(_grown(case, dim))):
                also = _fails(shrinker, other, dim, [n for n, failed in fails.items() if not failed])
                fails |= {n: True for n, failed in also.items() if failed}
            if (gate := explain(dim, fails)) and not shrinker.expired():  # else some sizes were not tried
                found.append(gate)
    return tuple(found)


def _grown(case: Case, dim: str) -> Case:
    """With the other extents as large as is cheap."""
    contract = contract_of(case.op)
    dims = contract.dims_of(case)
    for extent in GROWN:
        steps = {d: contract.dims[d] for d in dims if d != dim}
        wanted = {d: min(extent // step.multiple * step.multiple, step.most) for d, step in steps.items()}
        larger = with_dims(case, {d: max(dims[d], n) for d, n in wanted.items()})
        if larger.elements <= GROWN_ELEMENTS:
            return larger
    return case


def _fails(shrinker: Shrinker, case: Case, dim: str, sizes: Iterable[int]) -> dict[int, bool]:
    """With which sizes of a dim a case fails; without those of which nobody knows, when time is over, and too large."""
    contract, fails = contract_of(case.op), {}
    neighbours = [c for n in sizes if (c := with_dims(case, {dim: n})).elements <= MAX_ELEMENTS]
    for begin in range(0, len(neighbours), AT_ONCE):
        if shrinker.expired():
            break
        for checked in shrinker.judge(neighbours[begin : begin + AT_ONCE]):
            verdict = checked.verdicts[shrinker.subject]
            same = shrinker.same(verdict)
            if same or verdict.kind is Kind.PASS:  # not if it is declined, or fails otherwise, which may hide this
                fails[contract.dims_of(checked.case)[dim]] = same
    return fails


def _neighbours(extent: int, reach: int = REACH) -> list[int]:
    near = set(range(max(0, extent - reach), extent + reach + 1))
    far = {t * k + d for t in (64, 128, 256) for k in (1, 2) for d in (-1, 0, 1)}
    tiles = {(extent - d) * k + d for k in (2, 3) for d in (-1, 0, 1)}  # whatever it is, as 48, once it is so again
    return sorted(n for n in near | far | tiles if n >= 0)


def _few_neighbours(extent: int) -> list[int]:
    """Fewer near by; so that `% 16` is not said of what is `% 32`, for each tile sizes that only half of it fits."""
    odd = {t * (extent // t + 1 | 1) for t in TILES}
    beyond = {extent + t for t in TILES}
    return sorted({*_neighbours(extent, REACH_OF_CRASHES), *odd, *beyond})


def explain(dim: str, fails: dict[int, bool]) -> str:
    """The simplest rule that fits every probed size, or an empty string if none does or size does not matter."""
    bad = {n for n, failed in fails.items() if failed}
    sizes = set(fails)
    if len(sizes) < 3 or not bad or bad == sizes or bad == sizes - {0}:
        return ""  # that an empty tensor does not fail teaches nothing
    for text, predicted in _rules(dim, sizes, bad):
        if predicted == bad:
            return f"fails only if {text}"
    return ""


def _rules(dim: str, sizes: Iterable[int], bad: set[int]) -> Iterator[tuple[str, set[int]]]:
    low, high = min(bad), max(bad)
    every = set(sizes)
    yield f"{dim} >= {low}", {n for n in every if n >= low}
    yield f"{dim} == {low}", {low}
    for tile in TILES:
        for bound, beyond in (("", every), (f" and {dim} >= {low}", {n for n in every if n >= low})):
            yield f"{dim} % {tile} != 0{bound}", {n for n in beyond if n % tile}
            rest = low % tile
            yield f"{dim} % {tile} == {rest}{bound}", {n for n in beyond if n % tile == rest}
    ordered = sorted(every)
    step = min(b - a for a, b in pairwise(ordered))
    if high + step in every:  # else nobody knows where it ends: what an error budget hides ends anywhere
        yield f"{low} <= {dim} <= {high}", {n for n in every if low <= n <= high}
