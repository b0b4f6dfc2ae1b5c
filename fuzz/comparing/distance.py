"""How far two tensors are apart, in one pass over pieces of both, by the measures of the oracle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.formats import Array, Format
from kernel_assay.fuzz.comparing.result import Distance, Spot
from kernel_assay.fuzz.comparing.tensors import PIECE, Tensor
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.measure import Tally
from kernel_assay.oracles.numerics.rounding import round_to

_BLOCK = 1 << 15
"""Elements whose differences are in memory at a time; they fit into the cache."""


class Side(NamedTuple):
    """A tensor, and the file that is named when it cannot be read."""

    tensor: Tensor
    file: str

    def part(self, low: int, high: int) -> Array:
        """Elements from low up to high. Raises UsageError that names the file."""
        with about(self.file):
            try:
                return self.tensor.part(low, high)
            except OSError as error:
                raise UsageError(f"it cannot be read any more ({error.strerror})") from error


def distance(a: Side, b: Side, *, rounded: Format | None = None, ulp: int = 0, piece: int = PIECE) -> Distance:
    """Measure two tensors of one shape.

    rounded: the float type into which floats of both are rounded first; ulp: steps beyond which `first` is looked for;
    piece: elements that are read at a time.
    """
    turned = _fineness(_format(b, rounded)) > _fineness(_format(a, rounded))
    near, far = (a, b) if turned else (b, a)
    tally = _Pair(near, far, rounded, ulp)
    for low, high in a.tensor.spans(piece):
        tally.add(low, high)
    return tally.distance(turned=turned)


def _format(side: Side, rounded: Format | None) -> Format:
    stored = side.tensor.format
    return rounded if rounded is not None and stored.is_float else stored


def _fineness(fmt: Format) -> tuple[bool, int]:
    """Order formats by how finely they tell numbers apart; integers are exact."""
    return not fmt.is_float, fmt.precision or fmt.bits


@dataclass(slots=True)
class _Sums:
    """What `measure` does not add up."""

    away: float = 0.0
    relative: float = 0.0
    pairs: int = 0
    nonzero: int = 0


class _Pair:
    """Everything about two tensors that is known so far."""

    def __init__(self, got: Side, want: Side, rounded: Format | None, ulp: int) -> None:
        """got: the one whose type counts; want: the one with the finer type."""
        self._got, self._want, self._rounded, self._ulp = got, want, rounded, ulp
        self._fmt = _format(got, rounded)
        self._facts, self._table = measure_numpy.facts_of(self._fmt.name), measure_numpy.table_of(self._fmt.name)
        self._tally, self._sums = Tally(), _Sums()
        self._classes: Counter[str] = Counter()
        self._overflown = self._strange = 0
        self._spots: dict[str, tuple[int, float, float]] = {}

    def add(self, low: int, high: int) -> None:
        """Read a piece of both, and measure it."""
        got, want = self._read(self._got, low, high), self._read(self._want, low, high)
        self._tally.add(got, want)
        alike = got.dtype == want.dtype and np.array_equal(got.view(self._fmt.carrier), want.view(self._fmt.carrier))
        strange, self._strange = self._strange, self._tally.measured().got_nonfinite
        if alike:
            bits = got.view(self._fmt.carrier)
            strange = self._strange - strange
            self._sums.pairs += high - low - strange
            # What is shifted out is the sign: -0 is as much 0 as 0 is.
            self._sums.nonzero += int(np.count_nonzero(bits << 1 if self._fmt.is_float else bits)) - strange
        else:
            with np.errstate(all="ignore"):
                for start in range(0, high - low, _BLOCK):
                    self._look(got[start : start + _BLOCK], want[start : start + _BLOCK], low + start)
            self._remember(got, want, low)

    def _read(self, side: Side, low: int, high: int) -> Array:
        values = side.part(low, high)
        if self._rounded is None or values.dtype == self._rounded.dtype or not side.tensor.format.is_float:
            return values
        with np.errstate(all="ignore"):  # a NaN that signals becomes a quiet one
            return round_to(values.astype(np.float64), self._rounded)

    def _look(self, got: Array, want: Array, base: int) -> None:
        """Add up a block, and count its classes."""
        y = got.astype(np.float64) if self._table.size == 1 else self._table[got.view(self._fmt.carrier)]
        r = want.astype(np.float64)
        away, size = np.abs(y - r), np.abs(r)
        total, finite = float(away.sum()), None
        if not math.isfinite(total):
            finite = np.isfinite(y) & np.isfinite(r)
            self._count_classes(y, r)
            away, size = np.where(finite, away, 0.0), np.where(finite, size, 0.0)
            total = float(away.sum())
        nonzero = size > 0
        self._sums.away += total
        self._sums.relative += float(np.divide(away, size, out=np.zeros_like(away), where=nonzero).sum())
        self._sums.pairs += len(y) if finite is None else int(finite.sum())
        self._sums.nonzero += int(nonzero.sum())
        zeros = (y == 0) & (r == 0)
        if zeros.any():
            self._classes["zeros of different signs"] += int((zeros & (np.signbit(y) != np.signbit(r))).sum())
        over = (size > self._facts[measure_numpy.TOP]) & np.isfinite(y)
        self._overflown += int(over.sum())
        if "first" not in self._spots:
            self._find_first(got, y, r if want.dtype != np.int64 or got.dtype != np.int64 else want, over, base)

    def _count_classes(self, y: Array, r: Array) -> None:
        """Count pairs of two classes, whichever side has which."""
        nan = np.isnan(y), np.isnan(r)
        infinite = np.isinf(y), np.isinf(r)
        self._classes["NaN on one side"] += int((nan[0] != nan[1]).sum())
        self._classes["Inf against a number"] += int(((infinite[0] != infinite[1]) & ~nan[0] & ~nan[1]).sum())
        self._classes["Inf of different signs"] += int((infinite[0] & infinite[1] & (y != r)).sum())

    def _find_first(self, got: Array, y: Array, r: Array, over: Array, base: int) -> None:
        """Remember the first element that is more steps away than allowed, or of another class."""
        steps = measure_numpy.distance(got.view(self._fmt.carrier), y, r, self._facts)
        finite = np.isfinite(y) & np.isfinite(r)
        unlike = ~finite & ~((np.isnan(y) & np.isnan(r)) | (y == r))
        if len(found := np.flatnonzero((finite & (steps > self._ulp)) | unlike | over)):
            self._note("first", base + int(found[0]), got[found[0]], r[found[0]])

    def _remember(self, got: Array, want: Array, low: int) -> None:
        """Note what stands at the places of records that this piece has made."""
        m = self._tally.measured()
        classed = m.worst_index if m.class_bad else -1
        for name, at in (("worst", m.max_ulp_index), ("unlike", classed), ("largest", m.max_abs_index)):
            if low <= at < low + len(got):
                self._note(name, at, got[at - low], want[at - low])

    def _note(self, name: str, at: int, got: Array, want: Array) -> None:
        self._spots[name] = at, got.item(), want.item()

    def distance(self, *, turned: bool) -> Distance:
        """Say what has been found; turned: got is A's."""
        m, s = self._tally.measured(), self._sums
        return Distance(
            ulp_of=self._fmt.name,
            relative_to="B" if turned else "A",
            differing=m.misrounded + m.class_bad,
            max_ulp=m.max_ulp,
            ulp_histogram=m.ulp_histogram,
            nmse=m.nmse,
            cosine=m.cosine,
            psnr=m.psnr,
            max_abs=m.max_abs,
            mean_abs=s.away / s.pairs if s.pairs else 0.0,
            max_rel=m.max_rel,
            mean_rel=s.relative / s.nonzero if s.nonzero else 0.0,
            classes={name: n for name, n in self._classes.items() if n},
            unlike=m.class_bad + self._overflown,
            first=self._spot("first", turned=turned),
            worst=self._spot("unlike", turned=turned) or (self._spot("worst", turned=turned) if m.max_ulp else None),
            largest=self._spot("largest", turned=turned) if m.max_abs else None,
        )

    def _spot(self, name: str, *, turned: bool) -> Spot | None:
        if name not in self._spots:
            return None
        at, got, want = self._spots[name]
        shape: Sequence[int] = self._got.tensor.shape
        index = tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
        return Spot(index=index, a=got if turned else want, b=want if turned else got)
