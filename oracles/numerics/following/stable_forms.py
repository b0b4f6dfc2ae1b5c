"""Formulas that cancel, in the form that does not: an estimate follows that one (numerics.md 6).

x*x - y*y in float32 loses what (x - y)(x + y) keeps. If an estimate followed the first, it would grant that loss to
every kernel, and the reference itself would lose it in float64. Only forms are known here that are the same number for
all inputs; what is added or subtracted otherwise is followed as it stands, for most kernels do just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

LOGS = {"log": 1.0, "log2": 1.0 / np.log(2.0), "log10": 1.0 / np.log(10.0)}


class Made(NamedTuple):
    """The operation that a number came of."""

    name: str
    operands: tuple[Any, ...]
    stores: int
    """How many elements had been assigned by then: operands may be others after the next one."""
    axis: Any = None
    """Of a sum."""
    keepdims: bool = False


Answer = tuple[str, Any]
"""The form in words, and its number."""


def stable_form(name: str, operands: Sequence[Any], stores: int) -> Answer | None:
    """The number that an operation gives, computed without cancellation; None: it is computed as it stands."""
    made = [_made(x, stores) for x in operands]
    if name in LOGS and (rest := _beside(made[0], "add", 1.0)) is not None:
        found = np.log1p(rest)
        return "log1p", found if name == "log" else found * LOGS[name]
    if name != "subtract":
        return None
    return next((said for form in FORMS if (said := form(operands, made)) is not None), None)


def _made(x: Any, stores: int) -> Made:
    found = getattr(x, "made", None)
    return found if found is not None and found.stores == stores else Made("", (), stores)


def _is_number(x: Any, value: float) -> bool:
    return isinstance(x, int | float | np.number) and float(x) == value


def _beside(made: Made, name: str, value: float) -> Any:
    """The other operand of an operation with a certain number; None if it is none such."""
    if made.name != name or len(made.operands) != 2:
        return None
    one, other = made.operands
    return other if _is_number(one, value) else one if _is_number(other, value) else None


def _variance(operands: Sequence[Any], made: Sequence[Made]) -> Answer | None:
    """E[x^2] - E[x]^2, by two passes."""
    del operands
    total = _mean_of(made[0])
    mean = _mean_of(_made(made[1].operands[0], made[1].stores)) if made[1].name == "square" else None
    if total is None or mean is None or (total.axis, total.keepdims) != (mean.axis, mean.keepdims):
        return None
    squares, x = _made(total.operands[0], total.stores), mean.operands[0]
    if squares.name != "square" or squares.operands[0] is not x:
        return None
    centred = x - np.mean(x, axis=mean.axis, keepdims=True)
    return "the variance by two passes", np.mean(centred * centred, axis=mean.axis, keepdims=mean.keepdims)


def _mean_of(made: Made) -> Made | None:
    """The sum that a mean came of; None if it is none."""
    if made.name != "divide":
        return None
    total = _made(made.operands[0], made.stores)
    if total.name != "sum":
        return None
    count = total.operands[0].size / max(1, made.operands[0].size)
    return total if _is_number(made.operands[1], count) else None


def _squares(operands: Sequence[Any], made: Sequence[Made]) -> Answer | None:
    """A difference of two squares."""
    del operands
    if not all(m.name == "square" for m in made):
        return None
    a, b = (m.operands[0] for m in made)
    return "(a - b)(a + b)", (a - b) * (a + b)


def _roots(operands: Sequence[Any], made: Sequence[Made]) -> Answer | None:
    """A difference of two roots; of sums with one term in common, that term is gone."""
    if not all(m.name == "sqrt" for m in made):
        return None
    a, b = (m.operands[0] for m in made)
    total = operands[0] + operands[1]
    return "(a - b) / (sqrt(a) + sqrt(b))", np.where(total > 0, _difference(a, b, made[0].stores) / total, total)


def _difference(a: Any, b: Any, stores: int) -> Any:
    """The difference a - b, exact where one is the other and a term."""
    for one, other, sign in ((a, b, 1.0), (b, a, -1.0)):
        made = _made(one, stores)
        if made.name in {"add", "subtract"} and any(x is other for x in made.operands[: 1 + (made.name == "add")]):
            rest = made.operands[1] if made.operands[0] is other else made.operands[0]
            return rest * (sign if made.name == "add" else -sign)
    return a - b


def _exponential(operands: Sequence[Any], made: Sequence[Made]) -> Answer | None:
    """The exponential of x, less 1."""
    return ("expm1", np.expm1(made[0].operands[0])) if made[0].name == "exp" and _is_number(operands[1], 1.0) else None


def _cosine(operands: Sequence[Any], made: Sequence[Made]) -> Answer | None:
    """The distance of a cosine from 1."""
    if made[1].name != "cos" or not _is_number(operands[0], 1.0):
        return None
    half = np.sin(made[1].operands[0] * 0.5)
    return "2 sin(x/2)^2", half * half * 2.0


FORMS: tuple[Callable[[Sequence[Any], Sequence[Made]], Answer | None], ...] = (
    _variance,
    _squares,
    _roots,
    _exponential,
    _cosine,
)
