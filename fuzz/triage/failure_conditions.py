"""Learn from the neighbours of a smallest case when it fails: `fails only if cols % 32 != 0`.

A rule is learned from some cases, and said only if others agree, of which some must fail by it and some must not, and
if nothing fails where it says so when the failing case itself is taken there (counterexamples.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice, pairwise
from random import Random
from typing import Any

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.triage.choice_conditions import learn_choices
from kernel_assay.fuzz.triage.counterexamples import (
    AT_ONCE,
    GROWN_ELEMENTS,
    MAX_ELEMENTS,
    SIDES,
    bases,
    contradicted,
    grown,
    squeezed,
    with_value,
)
from kernel_assay.fuzz.triage.number_conditions import comparisons, is_power_of_two, number_rules, numbers_of
from kernel_assay.fuzz.triage.shrink_passes import livelier, next_seeds, with_dims
from kernel_assay.fuzz.triage.shrinker import SEED_TRIALS, Shrinker, is_dear
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.contract import Dim

TILES = (2, 4, 8, 16, 32, 64, 128, 256)
REACH = 36
"""Neighbours on either side; enough to tell every modulus up to 32."""
REACH_OF_CRASHES = 9
"""The same where each costs a worker."""
HELD_OUT = 4
"""Cases on either side of a rule that had no part in it, and must agree."""
PAIRS = 6
"""Pairs of dims that are compared."""

Due = tuple[Sequence[Case], bool]
"""Cases that are alike by a rule, and whether it lets one of them fail: what decides may need other values to show."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition under which a case fails."""

    text: str
    holds: Callable[[Any], bool]
    """Whether it fails with a value: a size, a number, or a pair of sizes."""

    @property
    def said(self) -> str:
        """The rule as a sentence."""
        return f"fails only if {self.text}"


def learn_gates(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    """One sentence for everything that decides whether the case fails: a size, an attribute, a layout.

    None if values decide it, which may not be so of a smaller case as it was of the first.
    original: the case it was found with, which a rule must not contradict.
    """
    shrinker.grant(original)
    if shrinker.target.kind.facts.dear or (not shrinker.examiner.is_large(case) and shrinker.hits(case) < SEED_TRIALS):
        return ()
    sizes = _learn_sizes(shrinker, case, original)
    if not sizes or _is_hidden_by_others(shrinker, case):
        sizes = _learn_relations(shrinker, case, original) or sizes
    return (*sizes, *_learn_numbers(shrinker, case, original), *learn_choices(shrinker, case, original))


def _learn_sizes(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    contract = contract_of(case.op)
    dims, before = contract.dims_of(case), contract.dims_of(original)
    found = []
    for dim, extent in dims.items():
        if shrinker.expired():
            break
        near = _few_neighbours(extent) if is_dear(shrinker.target) else _neighbours(extent)
        fails = _fails(shrinker, case, dim, near)
        near_enough = is_dear(shrinker.target)  # each failure costs a worker
        while not (near_enough or shrinker.expired()) and (middle := _between(fails, contract.dims[dim].multiple)):
            if not (found_out := _fails(shrinker, case, dim, [middle])):
                break
            fails |= found_out
        fails.setdefault(extent, True)  # it may lie beyond the range, as shapes of language models do
        if fails.setdefault(before[dim], True) and rule_of(dim, fails):
            # Plain values may hide it, as ones do what a mean leaves out, and so may other extents that are small.
            for other in (original, livelier(case), livelier(grown(case, dim))):
                also = _fails(shrinker, other, dim, [n for n, failed in fails.items() if not failed])
                fails |= {n: True for n, failed in also.items() if failed}
            rule = rule_of(dim, fails)
            if rule and not shrinker.expired() and _agree(shrinker, _held_out(case, dim, fails, rule)):
                below = range(
                    min(extent, before[dim]) - 1, 0, -1
                )  # also what nobody knows: there it may fail otherwise
                fewer = [n for n in below if not rule.holds(n) and _may_be(contract.dims[dim], n)][:SIDES]
                taken = (c for n in fewer for one in (case, original) for c in squeezed(one, dim, n))
                if is_dear(shrinker.target) or not contradicted(shrinker, taken):
                    found.append(rule.said)
    return tuple(found)


def _between(fails: Mapping[int, bool], multiple: int) -> int:
    """A size between the largest that works and the smallest that fails, if all larger ones fail; 0: there is none."""
    low = min((n for n, failed in fails.items() if failed), default=0)
    below = max((n for n in fails if n < low), default=low)
    if not all(failed for n, failed in fails.items() if n > low) or low - below <= multiple:
        return 0
    return (low + below) // 2 // multiple * multiple or multiple


def _held_out(case: Case, dim: str, fails: dict[int, bool], rule: Rule) -> list[Due]:
    """Sizes that nobody has tried, with these values and others; of the case's own, other fields."""
    own, random, other = contract_of(case.op).dims[dim], Random(f"{case.id} {dim}"), grown(case, dim)
    bases = case, other, livelier(other)
    high = max(min(own.high, 2 * max(fails)), own.low)
    sizes = random.sample(range(own.low, high + 1), high + 1 - own.low)
    new = [n for n in sizes if n and n % own.multiple == 0 and n not in fails]
    equal = [n for n in contract_of(case.op).dims_of(other).values() if _may_be(own, n)]
    works = [n for n in (*equal, *new) if not rule.holds(n)] or [n for n in fails if n and not rule.holds(n)]
    holds = islice((n for n in new if rule.holds(n)), HELD_OUT)
    dues = [([with_dims(base, {dim: n}) for base in bases], True) for n in holds]
    dues += [([*next_seeds(case, SEED_TRIALS + HELD_OUT)[SEED_TRIALS:], *bases[1:]], True)]
    return [*dues, *(([with_dims(base, {dim: n}) for base in bases], False) for n in works[:HELD_OUT])]


def _agree(shrinker: Shrinker, dues: Iterable[Due]) -> bool:
    """Whether cases fail just where they are due to, some of either kind; where nobody knows, nothing is said."""
    met = set()
    for cases, due in dues:
        if shrinker.expired():
            return False
        judged = shrinker.judge([case for case in cases if case.elements <= MAX_ELEMENTS])
        said = {_failed(shrinker, checked.verdicts[shrinker.subject]) for checked in judged} - {None}
        if said and (True in said) is not due:
            return False
        met |= {due} if said else set()
    return met == {True, False}


def _failed(shrinker: Shrinker, verdict: Verdict) -> bool | None:
    """None if it is declined, or fails otherwise, which may hide this."""
    same = shrinker.same(verdict)
    return same if same or verdict.kind is Kind.PASS else None


def _learned(
    shrinker: Shrinker,
    cases: Mapping[Any, Case],
    rules: Callable[[dict[Any, bool]], Iterable[Rule]],
    before: Any,
    across: Callable[[Any], Iterable[Case]],
) -> str:
    """The first rule that fits two thirds of the cases, and the case it was found with, if the rest agrees with it.

    across: other cases of a kind, none of which may fail where the rule says so.
    """
    keys = list(cases)
    some, rest = (keys[: -(-2 * len(keys) // 3)], keys[-(-2 * len(keys) // 3) :])
    shrinker.judge([cases[key] for key in some])  # all at once; what is outside of the op is left out
    judged = ((key, checked) for key in some for checked in shrinker.judge([cases[key]]))
    known = ((key, _failed(shrinker, checked.verdicts[shrinker.subject])) for key, checked in judged)
    fails = {key: failed for key, failed in known if failed is not None}
    if len(set(fails.values())) < 2 or shrinker.expired():
        return ""
    again = {key: next_seeds(cases[key], SEED_TRIALS + 2)[SEED_TRIALS:] for key in fails}
    others: dict[Any, list[Case]] = {**again, **{key: [cases[key]] for key in rest}}
    fitting = (r for r in rules(fails) if r.holds(before) and all(r.holds(key) is f for key, f in fails.items()))
    for rule in fitting:
        if _agree(shrinker, [(c, rule.holds(key)) for key, c in others.items()]):
            good = [key for key in cases if not rule.holds(key)][:SIDES]
            return "" if contradicted(shrinker, [c for key in good for c in across(key)]) else rule.said
    return ""


def _is_hidden_by_others(shrinker: Shrinker, case: Case) -> bool:
    """Whether an extent may be as it is and the case passes, if others are larger: then none alone decides."""
    larger = [grown(case, dim) for dim in contract_of(case.op).dims_of(case)]
    return any(_failed(shrinker, c.verdicts[shrinker.subject]) is False for c in shrinker.judge(larger))


def _learn_relations(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    """Rules that compare two extents, where none alone decides."""
    contract = contract_of(case.op)
    dims, before = contract.dims_of(case), contract.dims_of(original)
    for a, b in list(combinations(dims, 2))[:PAIRS]:
        if shrinker.expired() or is_dear(shrinker.target):
            break
        near = {n for d in (a, b) for n in (dims[d] - 1, dims[d], dims[d] + 1, 2 * dims[d], 3 * dims[d])} | {1, 2, 4}
        taken = {d: [n for n in sorted(near) if n > 0 and _may_be(contract.dims[d], n)] for d in (a, b)}
        pairs = [(m, n) for m in taken[a] for n in taken[b]]
        Random(f"{case.id} {a} {b}").shuffle(pairs)
        cases = {(m, n): c for m, n in pairs if (c := with_dims(case, {a: m, b: n})).elements <= GROWN_ELEMENTS}

        def rules(fails: dict[Any, bool], a: str = a, b: str = b) -> list[Rule]:
            del fails
            return [Rule(text, holds) for text, holds in comparisons(a, b)]

        def across(pair: tuple[int, int], a: str = a, b: str = b) -> list[Case]:
            return [with_dims(one, dict(zip((a, b), pair, strict=True))) for one in bases(case, original)]

        if found := _learned(shrinker, cases, rules, (before[a], before[b]), across):
            return (found,)
    return ()


def _may_be(dim: Dim, extent: int) -> bool:
    return dim.low <= extent <= dim.high and extent % dim.multiple == 0


def _learn_numbers(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    """Rules about attributes that are numbers: their sign, a single value, powers of two."""
    found = []
    for name, cases in numbers_of(case).items():
        if shrinker.expired() or is_dear(shrinker.target):
            break
        before = contract_of(case.op).attrs_of(original)[name]

        def rules(fails: dict[Any, bool], name: str = name) -> list[Rule]:
            return [Rule(text, holds) for text, holds in number_rules(name, fails)]

        def across(value: float, name: str = name) -> list[Case]:
            return [with_value(one, name, value) for one in bases(case, original)]

        if rule := _learned(shrinker, cases, rules, before, across):
            found.append(rule)
    return tuple(found)


def _fails(shrinker: Shrinker, case: Case, dim: str, sizes: Iterable[int]) -> dict[int, bool]:
    """Sizes of a dim with which a case fails; without those that are unknown, when time is over, and too large."""
    contract, fails = contract_of(case.op), {}
    neighbours = [c for n in sizes if (c := with_dims(case, {dim: n})).elements <= MAX_ELEMENTS]
    for begin in range(0, len(neighbours), AT_ONCE):
        if shrinker.expired():
            break
        for checked in shrinker.judge(neighbours[begin : begin + AT_ONCE]):
            if (failed := _failed(shrinker, checked.verdicts[shrinker.subject])) is not None:
                fails[contract.dims_of(checked.case)[dim]] = failed
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
    rule = rule_of(dim, fails)
    return rule.said if rule else ""


def rule_of(dim: str, fails: dict[int, bool]) -> Rule | None:
    """The rule that `explain` tells, if there is one."""
    bad = {n for n, failed in fails.items() if failed}
    sizes = set(fails)
    if len(sizes) < 3 or not bad or bad == sizes or bad == sizes - {0}:
        return None  # that an empty tensor does not fail teaches nothing
    return next((r for r in _rules(dim, sizes, bad) if {n for n in sizes if r.holds(n)} == bad), None)


def _rules(dim: str, sizes: Iterable[int], bad: set[int]) -> Iterator[Rule]:
    low, high = min(bad), max(bad)
    yield Rule(f"{dim} >= {low}", lambda n: n >= low)
    yield Rule(f"{dim} == {low}", lambda n: n == low)
    for tile in TILES:
        for bound, least in (("", 0), (f" and {dim} >= {low}", low)):
            yield Rule(f"{dim} % {tile} != 0{bound}", partial(_is_rest, tile, least, None))
            yield Rule(f"{dim} % {tile} == {low % tile}{bound}", partial(_is_rest, tile, least, low % tile))
    yield Rule(f"{dim} is a power of two", is_power_of_two)
    yield Rule(f"{dim} is no power of two", lambda n: not is_power_of_two(n))
    ordered = sorted(sizes)
    step = min(b - a for a, b in pairwise(ordered))
    if high + step in ordered and low == ordered[0]:  # nothing smaller was tried, or it could not be told
        yield Rule(f"{dim} <= {high}", lambda n: n <= high)
    elif high + step in ordered:  # else nobody knows where it ends: what an error budget hides ends anywhere
        yield Rule(f"{low} <= {dim} <= {high}", lambda n: low <= n <= high)


def _is_rest(tile: int, least: int, rest: int | None, size: int) -> bool:
    """Whether a size of at least so many leaves this rest; None: any."""
    return size >= least and (size % tile != 0 if rest is None else size % tile == rest)
