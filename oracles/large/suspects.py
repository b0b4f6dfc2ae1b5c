"""Places where two outputs differ most, by a room that each element has: all are looked at, and few are named.

This is numpy's; oracles/device/suspects.py has the same for outputs that a device holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.remote_array import Remote
from kernel_assay.oracles.judging.failure_mask import failing_bits
from kernel_assay.oracles.spec.contract import Reals

MOST = 64
"""Elements that are recomputed, of every output."""
FEW = 8
"""Elements of which a mean square tells too little."""
SLAB = 1 << 20
"""Elements whose float64 is in memory at a time."""


@dataclass(frozen=True, slots=True)
class Room:
    """The room that two right outputs may differ by, as far as the parts tell."""

    level: float
    floor: float
    rows: Reals | Remote
    """Root mean square of each row, relative to that of all; the output's shape without its last axis."""
    columns: Reals | Remote
    """Root mean square of each column: (columns,)."""
    bitwise: bool = False
    """Every difference of bits is too much."""

    def of(self, y: Reals, rows: slice) -> Reals:
        """The room of some rows, y: their values in the peer, (rows, columns); without roundings. On the host."""
        assert not isinstance(self.rows, Remote)
        assert not isinstance(self.columns, Remote)
        model = self.rows.reshape(-1, 1)[rows] * self.columns
        size = np.maximum(np.where(np.isfinite(y), np.abs(y), 0.0), model)
        return np.asarray(self.level * size + self.floor)


@dataclass(frozen=True, slots=True)
class Suspects:
    """Places where two outputs differ most."""

    at: NDArray[np.int64]
    """Flat indices in C order, the worst first."""
    ratio: Reals
    """Their differences by their rooms; Inf where one is no number, or no difference is allowed."""
    beyond: int
    """Elements of the whole output whose ratio is above 1."""

    @property
    def reach(self) -> float:
        """No element that is not among these has a larger ratio."""
        return float(self.ratio[-1]) if len(self.ratio) else 0.0


def _matrix(x: Array) -> Array:
    *lead, width = x.shape or (1,)
    return x.reshape(math.prod(lead), width)


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Stretches of rows of a matrix, of about SLAB elements each."""
    step = max(1, SLAB // max(1, shape[1]))
    return (slice(start, start + step) for start in range(0, shape[0], step))


def sizes(y: Array) -> tuple[Reals, Reals]:
    """The rms of each row, relative to that of all, and of each column; that of all, where it would be of few.

    Their shapes are that of y without its last axis, and (columns,).
    """
    matrix = _matrix(y)
    height, width = matrix.shape
    top = (
        max((float(np.abs(_finite(matrix[some])).max(initial=0.0)) for some in _slabs(matrix.shape)), default=0.0)
        or 1.0
    )
    rows, columns = np.zeros((height, 1)), np.zeros(width)
    for some in _slabs(matrix.shape):
        square = (_finite(matrix[some]) / top) ** 2
        rows[some] = square.sum(axis=1, keepdims=True)
        columns += square.sum(axis=0)
    mean = float(columns.sum()) / max(1, y.size)
    row = np.sqrt(rows / (width * (mean or 1.0))) if width >= FEW else np.ones((height, 1))
    column = np.sqrt(columns / height if height >= FEW else np.full(width, mean)) * top
    return row.reshape(y.shape[:-1]), column


def _finite(x: Array) -> Reals:
    with np.errstate(invalid="ignore"):  # a signaling NaN
        values = x.astype(np.float64)
    return np.where(np.isfinite(values), values, 0.0)


def suspects(x: Array, y: Array, room: Room, most: int = MOST) -> Suspects:
    """The elements of two outputs that differ most, by their room, and by more than nothing.

    Raises UsageError for outputs of different shapes or dtypes.
    """
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        raise UsageError(f"outputs of {x.dtype.name} {x.shape} and {y.dtype.name} {y.shape} cannot be compared")
    left, right = _matrix(x), _matrix(y)
    at, ratios, beyond = np.zeros(0, np.int64), np.zeros(0), 0
    for some in _slabs(left.shape):
        ratio = _ratios(left[some], right[some], room, some).reshape(-1)
        beyond += int((ratio > 1.0).sum())
        worst = _largest(ratio, most)
        at = np.concatenate([at, worst + some.start * left.shape[1]])
        ratios = np.concatenate([ratios, ratio[worst]])
    order = _largest(ratios, most)
    return Suspects(at[order], ratios[order], beyond)


def _ratios(x: Array, y: Array, room: Room, rows: slice) -> Reals:
    """The difference of each pair by its room; 0 for what is alike, two NaN or two of the same Inf among it."""
    if room.bitwise:
        return np.where(failing_bits(x, y), np.inf, 0.0)
    fmt = format_of(x.dtype)
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        rounded = fmt.unit * (np.abs(a) + np.abs(b)) + fmt.eta if fmt.is_float else 0.0
        ratio = np.abs(a - b) / (room.of(b, rows) + rounded)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(np.where(alike, 0.0, np.where(np.isfinite(ratio), ratio, np.inf)))


def _largest(ratio: Reals, most: int) -> NDArray[np.int64]:
    """The places of the largest ratios that are not 0, the largest first; of too many equal ones some from all over."""
    found = np.flatnonzero(ratio)
    if len(found) > most:
        least = np.partition(ratio[found], -most)[-most]
        above, equal = found[ratio[found] > least], found[ratio[found] == least]
        spread = np.linspace(0, len(equal) - 1, most - len(above)).astype(np.int64)
        found = np.concatenate([above, equal[spread]])
    return found[np.argsort(-ratio[found], kind="stable")]
