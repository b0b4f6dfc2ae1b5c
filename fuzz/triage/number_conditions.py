"""Rules about numbers for failure_conditions.py: attributes that are numbers, and two extents beside one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.triage.shrink_passes import with_attrs
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.contract import Contract

BETWEEN = 8
"""Numbers that are tried between the least and the largest that a contract names."""

Holds = Callable[[float], bool]


def numbers_of(case: Case) -> dict[str, dict[float, Case]]:
    """Cases by attribute that is a number: one with each value that it may have, its own first.

    Between two values that a contract names any may be, unless shapes or dtypes depend on it.
    """
    contract = contract_of(case.op)
    attrs, dims, found = contract.attrs_of(case), contract.dims_of(case), {}
    for name, values in contract.attrs.items():
        numbers = [v for v in (attrs[name], *values) if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(values) + 1 and len(set(numbers)) > 1:
            tried = dict.fromkeys([*numbers, *_between(contract, name, numbers, Random(f"{case.id} {name}"))])
            found[name] = {v: with_attrs(case, {**attrs, name: v}, dims) for v in tried}
    return found


def _between(contract: Contract, name: str, numbers: Sequence[float], random: Random) -> Iterator[float]:
    """Numbers of every kind within the range of those, in no order."""
    known = [float(v) for v in numbers]
    low, high = min(known), max(known)
    if any(f"{{{name}}}" in axis for axes in contract.axes for axis in axes):
        return
    whole = all(isinstance(v, int) for v in numbers)
    powers = [sign * 2.0**k for k in range(-4, 21) for sign in (1, -1) if low < sign * 2.0**k < high]
    drawn = [random.uniform(low, high) for _ in range(BETWEEN)]
    drawn += [math.copysign(math.exp(random.uniform(-3, 3)), v) for v in known for _ in range(2) if v]
    some = [*random.sample(powers, min(BETWEEN, len(powers))), *drawn]
    random.shuffle(some)
    for v in some:
        n = round(v) if whole else round(v, 3)
        if low <= n <= high and (n or 0 in numbers):
            yield n


def number_rules(name: str, fails: dict[float, bool]) -> Iterator[tuple[str, Holds]]:
    """Rules about one number, the plainest first. Where a float begins to show, an error budget decides: none says."""
    yield f"{name} < 0", lambda v: v < 0
    yield f"{name} > 0", lambda v: v > 0
    if 2 <= sum(map(is_power_of_two, fails)) <= len(fails) - 2:  # else it is one number that is told apart
        yield f"{name} is no power of two", lambda v: not is_power_of_two(v)
        yield f"{name} is a power of two", is_power_of_two
    bad, good = ([v for v, failed in fails.items() if failed is wanted] for wanted in (True, False))
    if len(good) == 1 and float(good[0]).is_integer():  # another was drawn, and one of many is right by chance
        yield f"{name} != {good[0]}", lambda v: v != good[0]
    if len(bad) == 1:
        yield f"{name} == {bad[0]}", lambda v: v == bad[0]
    if all(isinstance(v, int) for v in fails):
        yield f"{name} >= {min(bad)}", lambda v: v >= min(bad)
        yield f"{name} <= {max(bad)}", lambda v: v <= max(bad)


def is_power_of_two(value: float) -> bool:
    """Whether it is 2**k; numbers below zero are none."""
    return value > 0 and math.frexp(value)[0] == 0.5


def comparisons(a: str, b: str) -> Iterator[tuple[str, Callable[[tuple[int, int]], bool]]]:
    """Rules that compare two extents."""
    yield f"{a} == {b}", lambda p: p[0] == p[1]
    yield f"{a} != {b}", lambda p: p[0] != p[1]
    yield f"{a} > {b}", lambda p: p[0] > p[1]
    yield f"{a} < {b}", lambda p: p[0] < p[1]
    yield f"{a} >= {b}", lambda p: p[0] >= p[1]
    yield f"{a} <= {b}", lambda p: p[0] <= p[1]
    yield f"{a} % {b} != 0", lambda p: not _divides(p[1], p[0])
    yield f"{a} % {b} == 0", lambda p: _divides(p[1], p[0])
    yield f"{b} % {a} != 0", lambda p: not _divides(p[0], p[1])
    yield f"{b} % {a} == 0", lambda p: _divides(p[0], p[1])


def _divides(divisor: int, extent: int) -> bool:
    """Whether there is no rest; no extent is a multiple of one that is empty."""
    return divisor != 0 and extent % divisor == 0
