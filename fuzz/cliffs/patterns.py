"""Rules about sizes: which are slow, told from what was timed around a cliff."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernel_assay.corpus.model.findings import Pattern
from kernel_assay.fuzz.triage.number_conditions import is_power_of_two

CLEAR = 0.35
"""How near, as a share of a jump's logarithm, a cost must be to that of fine or slow sizes to count as one of them."""

LESS = 0.35
"""The share of a jump's logarithm that another one may have: those of tails and waves shrink as sizes grow."""
SHALLOW, STEPS = {"tail", "wave"}, {"from", "up to"}
"""Patterns whose jumps may be of several sizes, and those which have one only."""

Window = Mapping[int, float]
"""Sizes close to one another: logarithm of the seconds of each, less that of its work."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about the sizes of one dimension."""

    pattern: Pattern
    where: str
    level: Callable[[int], int]
    """Of sizes near one another those with the larger number are slow."""
    broad: bool = True
    """Whether it speaks of many sizes, and needs several that are slow."""
    share: Callable[[int], float] | None = None
    """The share of a size's cost that is due to it, where that is not the same of all; None: the level."""

    def explains(self, fine: int, slow: int) -> bool:
        """Whether the second size is slower than the first by this rule."""
        cost = self.share or self.level
        return cost(slow) > cost(fine)


def labels(window: Window, jump: float) -> dict[int, bool]:
    """Which sizes of a window are slow and which are not, those left out of which it cannot be told."""
    base = min(window.values(), default=0.0)
    shares = {n: (cost - base) / jump for n, cost in window.items()}
    return {n: share > 0.5 for n, share in shares.items() if abs(share - 0.5) > 0.5 - CLEAR}


def rule_of(axis: str, slow: int, fine: int, windows: Sequence[Window], jump: float) -> Rule:
    """The plainest rule by which all windows are as they are; the slow size alone if there is none.

    windows: the first is around the two sizes, close ones of them only in the second, others follow. jump: logarithm of
    the factor between the two.
    """
    wide = [labels(window, jump) for window in (windows[0], *windows[2:])]
    shallow = [labels(window, _own_jump(window, jump)) for window in windows[1:]]
    for rule in _rules(axis, slow, fine):
        told = shallow if rule.pattern in SHALLOW else wide
        if rule.explains(fine, slow) and _fits(rule, told) and (rule.pattern not in STEPS or _fits(rule, shallow)):
            return rule
    return Rule("at", f"at {axis} = {slow}", lambda n: int(n == slow), broad=False)


def _own_jump(window: Window, jump: float) -> float:
    """The largest jump between neighbours in a window, which may be smaller than that of the two sizes; or that."""
    costs = [window[n] for n in sorted(window)]
    largest = max((abs(b - a) for a, b in pairwise(costs)), default=0.0)
    return largest if largest > LESS * jump else jump


def _fits(rule: Rule, told: Sequence[Mapping[int, bool]]) -> bool:
    """Whether each window is as the rule says, and a rule about many sizes is seen at several, or in two windows."""
    for window in told:
        least = min(map(rule.level, window), default=0)
        if any(is_slow != (rule.level(n) > least) for n, is_slow in window.items()):
            return False
    jumps = [window for window in told if len(set(window.values())) == 2]
    seen = [sum(is_slow is wanted for window in jumps for is_slow in window.values()) for wanted in (True, False)]
    return not rule.broad or (min(seen) > 1 and (len(jumps) > 1 or rule.pattern not in SHALLOW))


def _rules(axis: str, slow: int, fine: int) -> Iterator[Rule]:
    """Rules by which the slow size may be slow, the plainest first."""
    if slow > fine:
        yield Rule("from", f"from {axis} = {slow} on", lambda n: n >= slow, broad=False)
    else:
        yield Rule("up to", f"up to {axis} = {slow}", lambda n: n <= slow, broad=False)
    yield from (_multiples(axis, slow, m) for m in _divisors(slow))
    if is_power_of_two(slow):
        text = f"when {axis} is a power of two"
        yield Rule("powers of two", f"{text}, as at {slow}", is_power_of_two)
        yield Rule("powers of two", f"{text} from {slow} on", lambda n: is_power_of_two(n) and n >= slow)
    yield from (_remainder(axis, slow, m) for m in _divisors(fine))
    if abs(slow - fine) == 1:
        block = _wave if slow > fine else _tail
        yield from (block(axis, slow, m) for m in reversed(_divisors(fine)))
    yield Rule("only", f"at {axis} = {slow} only", lambda n: n == slow, broad=False)


def _multiples(axis: str, slow: int, m: int) -> Rule:
    return Rule("multiples", f"when {axis} % {m} == 0, as at {slow}", lambda n: n % m == 0)


def _remainder(axis: str, slow: int, m: int) -> Rule:
    return Rule("remainder", f"when {axis} % {m} != 0, as at {slow}", lambda n: n % m != 0)


def _tail(axis: str, slow: int, m: int) -> Rule:
    text = f"when the last block of {m} is nearly full, as at {axis} = {slow}"
    return Rule("tail", text, lambda n: -(n // m), share=lambda n: n % m / n)


def _wave(axis: str, slow: int, m: int) -> Rule:
    text = f"behind each multiple of {m}, as from {axis} = {slow} on"
    return Rule("wave", text, lambda n: (n - 1) // m, share=lambda n: -n % m / n)


def _divisors(size: int) -> list[int]:
    """All but 1, sorted."""
    return [m for m in range(2, size + 1) if size % m == 0]


def centers(slow: int, fine: int) -> list[int]:
    """Sizes around which a rule is looked at once more: parts of the rounder of the two, and sizes so far beside it."""
    base = max(slow, fine, key=_roundness)
    halves = [base >> k for k in range(7)]
    beside = {*halves, base // 3, *(_roundness(base) * 2 // k for k in (1, 2, 4))}
    found = {*halves[1:4], base // 3, *(base - part for part in beside), *(base + part for part in beside)}
    return sorted(found - {0, base})


def _roundness(size: int) -> int:
    """The largest power of two that divides it."""
    return size & -size
