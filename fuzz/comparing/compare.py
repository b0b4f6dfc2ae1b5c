"""Compare two files of tensors, or two folders: the command `kassay compare` calls this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Format, format_of
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.comparing.budget import judged
from kernel_assay.fuzz.comparing.distance import Side, distance
from kernel_assay.fuzz.comparing.files import Named, opened
from kernel_assay.fuzz.comparing.logits import rows
from kernel_assay.fuzz.comparing.result import Compared, Comparison, Distance
from kernel_assay.fuzz.comparing.tensors import Tensor, full_name
from kernel_assay.reports.words import count, extent, figure

FACTOR = 2.0
"""By how much NMSE may grow from the baseline to the candidate."""

USUAL = Numerics()


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far tensors may be apart and still agree. All that is given must hold; nothing given: 0 steps."""

    ulp: int | None = None
    """Steps in the narrower type of the two, into which the other one is rounded."""
    nmse: float | None = None
    cosine: float | None = None
    dtype: str = ""
    """Float type into which both are rounded first; within 1 step then, if nothing else is given."""

    @property
    def steps(self) -> int | None:
        """Steps that are allowed, if it is them that decide."""
        if self.ulp is None and self.nmse is None and self.cosine is None:
            return 1 if self.dtype else 0
        return self.ulp

    def said(self) -> str:
        """Words for it."""
        kind = full_name(self.dtype) if self.dtype else "the narrower type"
        parts = (
            []
            if self.steps is None
            else [f"equal in {kind}" if not self.steps else f"within {self.steps:,} ULP of {kind}"]
        )
        parts += [] if self.nmse is None else [f"NMSE <= {self.nmse:g}"]
        parts += [] if self.cosine is None else [f"cosine >= {self.cosine:g}"]
        return " and ".join(parts)

    def broken(self, d: Distance) -> str:
        """Words for what of it does not hold, if anything."""
        if d.unlike:
            return f"{count(d.unlike, 'element')} of another class"
        if self.steps is not None and (d.max_ulp > self.steps or (not self.steps and d.differing)):
            return f"{figure(d.max_ulp)} ULP"
        if self.nmse is not None and d.nmse > self.nmse:
            return f"NMSE {d.nmse:.3g}"
        if self.cosine is not None and d.cosine < self.cosine:
            return f"cosine {d.cosine:.6g}"
        return ""


def compare(
    a: str | Path,
    b: str | Path,
    *,
    allowed: Allowed = Allowed(),
    truth: str | Path | None = None,
    factor: float = FACTOR,
    raw: str = "",
    logits: Sequence[str] = (),
    budget_of: str = "",
    attrs: Sequence[str] = (),
    numerics: Numerics = USUAL,
) -> Comparison:
    """Hold the tensors of B against those of A, name by name; or both against a truth.

    truth: a file (or folder) of finer types: B agrees if its NMSE is at most factor times A's, or no more than rounding
    the truth to B's type may cost; allowed does not count then. raw: `DTYPE` or `DTYPE:SHAPE` of files that do not say
    it. logits: patterns of names of tensors whose rows are scores of choices. budget_of: an op, whose inputs are in the
    files: B agrees if its outputs are within the error budget for them. attrs: `NAME=VALUE`, of that op; numerics: the
    arithmetic that it claims. Raises UsageError.
    """
    if truth is not None and allowed != Allowed():
        raise UsageError("with --truth it is --factor that decides; leave out --ulp, --nmse, --cosine and --dtype")
    if "" in map(str, (a, b)) or truth == "":
        raise UsageError("the name of a file is empty; is a variable not set?")
    if budget_of and (truth is not None or allowed != Allowed() or logits):
        raise UsageError("with --budget-of it is the op's budget that decides; leave out --truth, --logits and limits")
    if not budget_of and (attrs or numerics != USUAL):
        raise UsageError("--attr and --numerics are about an op; name the op, with --budget-of")
    if truth is None and factor != FACTOR:
        raise UsageError("--factor is for --truth; name a file of higher precision with it")
    rounded = format_of(full_name(allowed.dtype)) if allowed.dtype else None
    if rounded is not None and not rounded.is_float:
        raise UsageError(f"{rounded.name} is no float type; there is nothing to round to")
    with ExitStack() as stack:
        sides = opened([Path(place) for place in (a, b, truth) if place is not None], raw, stack)
        if budget_of:
            found, asked = judged(budget_of, attrs, numerics, *sides), f"within the error budget of {budget_of}"
        else:
            judge = _Judge(allowed, rounded, factor, tuple(logits))
            found = [judge.compared(name, [_side(side, name) for side in sides]) for name in _names(sides)]
            judge.check_patterns(_names(sides))
            asked = (
                f"B's NMSE at most {factor:g} times A's, or what rounding may cost"
                if truth is not None
                else allowed.said()
            )
    return Comparison(
        a=str(a),
        b=str(b),
        truth=str(truth or ""),
        budget_of=budget_of,
        asked=asked,
        agrees=all(one.agrees for one in found),
        bytes=sum(tensor.bytes for side in sides for tensor, _ in side.values()),
        tensors=tuple(sorted(found, key=_rank)),
    )


def _names(sides: Sequence[Named]) -> list[str]:
    """All names, in the order of the files. A truth may hold more than is compared."""
    return list(dict.fromkeys(name for side in sides[:2] for name in side))


def _side(side: Named, name: str) -> Side | None:
    return Side(*side[name]) if name in side else None


def _rank(one: Compared) -> tuple[bool, bool, float, float]:
    """Order tensors: what does not agree first, of it what could not be compared, then the farthest."""
    d = one.distance
    return one.agrees, d is not None, -d.nmse if d else 0.0, float(-d.max_ulp) if d else 0.0


@dataclass(frozen=True, slots=True)
class _Judge:
    allowed: Allowed
    rounded: Format | None
    factor: float
    logits: tuple[str, ...]

    def check_patterns(self, names: Sequence[str]) -> None:
        """Refuse a pattern that no name has."""
        for pattern in self.logits:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError(f"no tensor is called {pattern!r}, which --logits names")

    def compared(self, name: str, sides: Sequence[Side | None]) -> Compared:
        """Compare what is called so; sides: of A, B and perhaps the truth."""
        there = [side for side in sides if side is not None]
        if len(there) < len(sides):
            lost = [who for who, side in zip(("A", "B", "the truth"), sides, strict=False) if side is None]
            return Compared(name=name, shape=there[0].tensor.shape, trouble=f"not in {lost[0]}")
        tensors = [side.tensor for side in there]
        first = tensors[0]
        told = {"name": name, "shape": first.shape, "dtypes": (first.dtype, tensors[1].dtype), "elements": first.size}
        if other := [one for one in tensors if one.shape != first.shape]:
            who = "B" if other[0] is tensors[1] else "the truth"
            return Compared(**told, trouble=f"{extent(first.shape)} in A, {extent(other[0].shape)} in {who}")
        if any(fnmatchcase(name, pattern) for pattern in self.logits):
            told["rows"] = rows(*there[:2])
        if len(there) > 2:
            return self._beside_truth(told, there)
        d = distance(there[0], there[1], rounded=self.rounded, ulp=self.allowed.steps or 0)
        return Compared(**told, distance=d, trouble=self.allowed.broken(d))

    def _beside_truth(self, told: dict[str, object], sides: Sequence[Side]) -> Compared:
        a, b, truth = sides
        for side in (a, b):
            _check_finer(side.tensor, truth.tensor)
        base, d = distance(truth, a), distance(truth, b)
        return Compared(**told, distance=d, baseline=base, trouble=self._farther(base, d, b.tensor.format))

    def _farther(self, base: Distance, d: Distance, fmt: Format) -> str:
        """Words for how B is farther from the truth than A, if it is by more than is allowed."""
        if d.unlike > base.unlike:
            return f"{count(d.unlike, 'element')} of another class than the truth, {figure(base.unlike)} in A"
        if base.unlike or d.nmse <= max(self.factor * base.nmse, fmt.unit**2 if fmt.is_float else 0.0):
            return ""
        return f"{figure(ratio(base, d))} times as far from the truth"


def ratio(base: Distance, d: Distance) -> float:
    """How many times A's NMSE B's is: 1 if both are 0."""
    if base.nmse == d.nmse:
        return 1.0
    return d.nmse / base.nmse if base.nmse and math.isfinite(base.nmse) else math.inf if d.nmse else 0.0


def _check_finer(one: Tensor, truth: Tensor) -> None:
    """Refuse a truth that tells numbers apart no better than what is held against it."""
    if one.format.is_float and truth.format.is_float and truth.format.precision < one.format.precision:
        raise UsageError(
            f"the truth has {one.name} in {truth.dtype}, which is coarser than {one.dtype}; give one of a finer type"
        )
