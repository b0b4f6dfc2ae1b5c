"""Two subjects, compared at every element of a large output: a filter that proposes where to look, never a judge.

What two right outputs may differ by is E of the one, E of the other, and both roundings. The budgets of a large output
are not known everywhere, only in parts of it; so `room_of` takes a model that holds there:

    |x - y| <= level * size + floor + unit * (|x| + |y|) + eta,    size = max(|y|, rms of its row * rms of its column)

with rms relative to that of all. That is no bound: what other rows and columns give may have another budget. So nobody
is accused by it. The elements with the largest ratio of both sides are recomputed by the oracle, with their rows and
columns (oracles/parts.py), and the ordinary budget decides. Hence no false alarm; and a fault of one element is found,
wherever it is, if fewer than MOST others have a larger ratio. What it can miss:

- a fault that both outputs have;
- one that is smaller, in units of the room, than those that were examined: `Suspects.reach` says how far all others are
  from the peer at most. Where sizes vary from row to row by more than rms tells, rooms of small elements are too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpus.errors import UsageError
from corpus.formats import Array, format_of
from corpus.materialize import Tensors
from corpus.records import Case, Numerics, Subject
from corpus.share import Share
from oracles.contract import Contract, Reals
from oracles.failing import failing_bits
from oracles.parts import Part, around, cut, sample
from oracles.reference import Reference
from oracles.sampled import Sampled, judge_part

MOST = 64
"""Elements that are recomputed, of every output."""
FEW = 8
"""Elements of which a mean square tells too little."""
SLAB = 1 << 20
"""Elements whose float64 is in memory at a time."""


@dataclass(frozen=True, slots=True)
class Room:
    """What two right outputs may differ by, as far as the parts tell."""

    level: float
    floor: float
    rows: Reals
    """Root mean square of each row (all but the last axis), relative to that of all: (rows, 1)."""
    columns: Reals
    """Root mean square of each column: (columns,)."""
    bitwise: bool = False
    """Every difference of bits is too much."""

    def of(self, y: Reals, rows: slice) -> Reals:
        """The room of some rows, y: their values in the peer, (rows, columns); without roundings."""
        size = np.maximum(np.where(np.isfinite(y), np.abs(y), 0.0), self.rows[rows] * self.columns)
        return np.asarray(self.level * size + self.floor)


@dataclass(frozen=True, slots=True)
class Suspects:
    """Where two outputs differ most."""

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


@dataclass(frozen=True, slots=True)
class Confronted:
    """What came of a comparison."""

    mine: Sampled
    theirs: Sampled
    suspects: dict[str, Suspects]
    """By output."""
    left: int
    """Suspects that were not recomputed, for they lie in too many different rows."""


def confront(
    contract: Contract,
    case: Case,
    mine: tuple[Subject, Tensors],
    theirs: tuple[Subject, Tensors],
    pairs: Sequence[tuple[Part, Reference]] | None = None,
) -> Confronted:
    """Judge two subjects by a sample, and by the elements at which they differ most.

    mine, theirs: each with its outputs of the whole case, host arrays of the right form; pairs: the sample with
    its references, if it is known. Raises UsageError for outputs of different shapes or dtypes, and as sample does.
    """
    found, left = {}, 0
    pairs = [(part, part.reference()) for part in sample(contract, case)] if pairs is None else list(pairs)
    for name in contract.outputs:
        x, y = mine[1][name], theirs[1][name]
        found[name] = suspects(x, y, room_of(pairs, name, (mine[0].numerics, theirs[0].numerics), y))
        near, rest = around(contract, case, name, found[name].at.tolist())
        pairs += [(part, part.reference()) for part in near]
        left += len(rest)
    mine_said, theirs_said = (_judged(pairs, *one) for one in (mine, theirs))
    return Confronted(mine_said, theirs_said, found, left)


def _judged(pairs: Sequence[tuple[Part, Reference]], subject: Subject, outputs: Tensors) -> Sampled:
    found = [judge_part(part, reference, subject, outputs) for part, reference in pairs]
    total = Sampled(found[0].verdict, _compared(outputs))
    for one in found:
        total = total.plus(one)
    return total


def _compared(outputs: Tensors) -> tuple[Share, ...]:
    return tuple(Share(output=name, of=array.size, peer=array.size) for name, array in outputs.items())


def room_of(pairs: Sequence[tuple[Part, Reference]], name: str, claims: Sequence[Numerics], y: Array) -> Room:
    """The room of an output, from the budgets of its parts under what both subjects claim; y: the peer's output."""
    rows, columns = _sizes(y)
    level, floor, bitwise = 0.0, 0.0, False
    for part, reference in pairs:
        want = np.abs(reference.want[name])
        budgets = [reference.budget(claim)[name] for claim in claims]
        error = np.zeros(want.shape)
        for budget in budgets:
            error += np.asarray(budget.error)
        size = np.maximum(want, _model(part, name, rows, columns, y.shape).reshape(want.shape))
        known = np.isfinite(error) & np.isfinite(size)
        level = max(level, float((error[known & (size > 0)] / size[known & (size > 0)]).max(initial=0.0)))
        floor = max(floor, float(error[known & (size == 0)].max(initial=0.0)))
        bitwise = bitwise or any(budget.bitwise for budget in budgets)
    return Room(level, floor, rows, columns, bitwise)


def _model(part: Part, name: str, rows: Reals, columns: Reals, shape: tuple[int, ...]) -> Reals:
    """What rows and columns say of the elements of a part."""
    *lead, _ = shape or (1,)
    along, last = part.axes[name], len(lead)
    height = cut(rows.reshape(lead), {axis: index for axis, index in along.items() if axis < last})
    width = columns[along[last]] if last in along else columns
    return np.asarray(height[..., None] * width)


def _matrix(x: Array) -> Array:
    *lead, width = x.shape or (1,)
    return x.reshape(math.prod(lead), width)


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Stretches of rows of a matrix, of about SLAB elements each."""
    step = max(1, SLAB // max(1, shape[1]))
    return (slice(start, start + step) for start in range(0, shape[0], step))


def _sizes(y: Array) -> tuple[Reals, Reals]:
    """The rms of each row, relative to that of all, and of each column; that of all, where it would be of few."""
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
    return row, column


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
