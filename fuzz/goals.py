"""What a clean run must have reached ("sometimes" assertions). A run without findings proves little if these stay open.

To add a goal, add a function: it is true for a checked case that reaches it. Its docstring says what that means.
"""

from __future__ import annotations

from collections.abc import Callable

from corpus.records import Case, Kind
from fuzz.check import Checked
from fuzz.coverage import nature

Goal = Callable[[Checked], bool]
GOALS: dict[str, Goal] = {}


def goal(reached: Goal) -> Goal:
    """Enter a goal into the table under its own name."""
    GOALS[reached.__name__] = reached
    return reached


def _specials(case: Case) -> set[str]:
    return {s.value.removeprefix("-") for t in case.tensors.values() for s in t.specials}


def _distributions(case: Case) -> set[str]:
    return {t.fill.distribution for t in case.tensors.values()}


def _last(case: Case) -> int:
    shape = next(iter(case.tensors.values())).shape
    return shape[-1] if shape else 1


@goal
def empty_tensor(c: Checked) -> bool:
    """An input without elements."""
    return any(t.size == 0 for t in c.case.tensors.values())


@goal
def single_element(c: Checked) -> bool:
    """Every input has one element."""
    return all(t.size == 1 for t in c.case.tensors.values())


@goal
def tile_tail_by_one(c: Checked) -> bool:
    """A last axis longer than 128 that ends one element behind a tile of 32."""
    return _last(c.case) > 128 and _last(c.case) % 32 == 1


@goal
def long_axis(c: Checked) -> bool:
    """A last axis of 2048 or more."""
    return _last(c.case) >= 2048


@goal
def equal_axes(c: Checked) -> bool:
    """A square input larger than 1 x 1."""
    shape = next(iter(c.case.tensors.values())).shape
    return len(shape) > 1 and shape[-1] == shape[-2] > 1


@goal
def misaligned(c: Checked) -> bool:
    """An input one element off its alignment."""
    return any(t.layout == "offset_one" for t in c.case.tensors.values())


@goal
def strided(c: Checked) -> bool:
    """An input that is not contiguous."""
    return any(t.layout in {"transposed", "row_gaps", "element_gaps"} for t in c.case.tensors.values())


@goal
def broadcast(c: Checked) -> bool:
    """An input with stride 0."""
    return any(t.layout == "broadcast" and t.shape[:1] > (1,) for t in c.case.tensors.values())


@goal
def nan_input(c: Checked) -> bool:
    """A NaN among the inputs, on purpose."""
    return bool(_specials(c.case) & {"nan", "nan_payload"})


@goal
def inf_input(c: Checked) -> bool:
    """An infinity among the inputs, on purpose."""
    return "inf" in _specials(c.case)


@goal
def subnormal_input(c: Checked) -> bool:
    """A subnormal number among the inputs, on purpose."""
    return bool(_specials(c.case) & {"subnormal", "max_subnormal"})


@goal
def largest_finite_input(c: Checked) -> bool:
    """The largest finite number among the inputs."""
    return "max" in _specials(c.case)


@goal
def any_bit_pattern(c: Checked) -> bool:
    """An input of random bits."""
    return "raw_bits" in _distributions(c.case)


@goal
def cancellation(c: Checked) -> bool:
    """An input of pairs that cancel."""
    return "cancellation" in _distributions(c.case)


@goal
def independent_values(c: Checked) -> bool:
    """All inputs independent draws, where the statistical budgets apply."""
    return nature(c.case) == "iid"


@goal
def law_tested(c: Checked) -> bool:
    """A metamorphic law could be tested."""
    return c.laws > 0


@goal
def budget_used(c: Checked) -> bool:
    """A correct result that used more than a tenth of its error budget: the budget is not blind."""
    return any(v.kind is Kind.PASS and v.rho > 0.1 for v in c.verdicts.values())


@goal
def side_by_side(c: Checked) -> bool:
    """Two subjects passed the same case."""
    return sum(v.kind is Kind.PASS for v in c.verdicts.values()) >= 2


def reached_now(open_goals: set[str], checked: Checked) -> list[str]:
    """Which of the goals still open this case reaches."""
    return [name for name in sorted(open_goals) if GOALS[name](checked)]
