"""Distance of an output from a peer or a reference, both in device memory: judging.measure without a copy.

The numbers are those of oracles.judging.measure.measure, which defines them; only sums (nmse, cosine, psnr, z) may
differ, in the seventh digit. measure.cu has the kernels; what runs them is a `Device`: a GPU (oracles.device.gpu), or
in tests the emulator of CUDA on the CPU.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.measure import Measured, report

SOURCE = Path(__file__).with_name("measure.cu")
LINES, COLUMNS = 32, 64
"""Cells of the map of failures, at most; as oracles.judging.failure_detail draws it."""
SEEDS = 64
"""Tiles that walk takes in advance, so that nothing but a large value is looked at twice."""

Argument = ctypes.c_void_p | ctypes.c_int


class Device(Protocol):
    """A device that runs the kernels of measure.cu, in the order it is asked to; see oracles.device.gpu.Gpu."""

    multiprocessors: int

    def take(self, size: int) -> int:
        """The address of so many bytes, aligned to 256."""

    def free(self, address: int) -> None:
        """Give them back."""

    def zero(self, address: int, size: int) -> None:
        """Make them 0."""

    def send(self, address: int, data: Array) -> None:
        """Copy a contiguous array there."""

    def fetch(self, address: int, data: Array) -> None:
        """Copy it back."""

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[Argument]) -> None:
        """Run a kernel."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A contiguous tensor in device memory: its address, at a multiple of the element's size, dtype and shape."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison that is asked for.

    want: a tensor of the same shape: without slope a reference, float64 or float32; with one a peer of got's dtype.
    error, accept, sigma: as of oracles.judging.measure.measure, one number or a tensor of float64 (accept: uint8) as
    large as got. A peer's budget is error + slope * abs(want), of two numbers.
    """

    got: Tensor
    want: Tensor
    error: float | Tensor
    slope: float | None = None
    accept: int | Tensor | None = None
    sigma: float | Tensor | None = None

    def check(self) -> None:
        """Raise UsageError unless these go together."""
        if self.got.shape != self.want.shape:
            raise UsageError(f"got has shape {self.got.shape}, want {self.want.shape}; they must be equal")
        _kind(self.got.dtype)
        peer = self.slope is not None
        if (self.want.dtype != self.got.dtype) if peer else self.want.dtype.name not in {"float64", "float32"}:
            due = f"{self.got.dtype.name}, as of any peer" if peer else "float64 or float32, as of any reference"
            raise UsageError(f"want has dtype {self.want.dtype.name}; it must be {due}")
        if peer and isinstance(self.error, Tensor):
            raise UsageError("a tensor of errors does not go with a slope; give both as numbers")
        for name, dtype in (("error", "float64"), ("accept", "uint8"), ("sigma", "float64")):
            row = getattr(self, name)
            if isinstance(row, Tensor) and (row.dtype.name != dtype or row.size != self.got.size):
                raise UsageError(f"{name} has {row.size} of {row.dtype.name}; it must have {self.got.size} of {dtype}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison, and where failures are.

    cells: failing elements of each cell of the output, seen as a matrix of rows of its last axis and cut as in
    oracles.judging.failure_detail.picture, int64 of at most (LINES, COLUMNS); None if nothing fails.
    """

    measured: Measured
    cells: NDArray[np.int64] | None


@cache
def tuning() -> dict[str, int]:
    """The constants of measure.cu that stand for numbers."""
    found = re.findall(r"^#define (\w+) (\d+)\b", SOURCE.read_text("utf-8"), re.MULTILINE)
    return {name: int(value) for name, value in found}


_KINDS = {
    name: kind
    for kind, name in enumerate(("float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64"))
}
_TABLE = len(_KINDS)
_PEERS = {name: f"peers_{name}" for name in ("float32", "float16", "bfloat16")}
_TASK = struct.Struct("<8Q3d4q7Q2q5dq")
_NOTES = ("unusual", "failing", "ratio", "rho", "ulps", "error", "far", "unclear")
_ROW, _NOTED = 16, 74
_COUNTS = _NOTED + len(_NOTES)
# Columns of a row of measure.cu, beside those of the tally that they fill.
_SUMS = ((0, measure_numpy.SUM_EE), (1, measure_numpy.SUM_RR), (2, measure_numpy.SUM_YY), (3, measure_numpy.SUM_Z))
_LARGEST = ((4, measure_numpy.PEAK), (5, measure_numpy.REAL_ULP))
_RECORDS = (
    (6, measure_numpy.RHO, measure_numpy.RHO_AT),
    (8, measure_numpy.MAX_ABS, measure_numpy.ABS_AT),
    (10, measure_numpy.MAX_REL, measure_numpy.REL_AT),
)
_ULP, _FIRST_CLASS = 12, 14
_COUNTED = [
    measure_numpy.BAD,
    measure_numpy.CLASS_BAD,
    measure_numpy.OVER,
    measure_numpy.MISROUNDED,
    measure_numpy.GOT_NONFINITE,
    measure_numpy.WANT_NONFINITE,
]
_COUNTED += [measure_numpy.PAIRS, measure_numpy.SIGMAS]
_NOWHERE = 2**64 - 1


def _kind(dtype: np.dtype[Any]) -> int:
    return _KINDS.get(format_of(dtype).name, _TABLE)


def _cut(question: Question) -> tuple[int, int, int, int]:
    """Width of the output as a matrix, height and width of a cell, cells in a line."""
    shape = question.got.shape
    width, height = shape[-1] if shape else 1, math.prod(shape[:-1])
    tall, wide = -(-height // LINES), -(-width // COLUMNS)
    return width, tall, wide, -(-width // wide)


class Plan:
    """One question, with the memory that answering takes until it is closed.

    Tile 0 is what lies before the first address where both tensors may be read in vectors, all others have `tile`
    elements, but for the last one. Those of `peers`, if any, are for the kernel of peers; walk takes the rest, what is
    in front of them first: so that what equals a record of those comes later.
    """

    def __init__(self, device: Device, question: Question, constants: Mapping[str, int] | None = None) -> None:
        question.check()
        self.device, self.question = device, question
        self.constants = {**tuning(), **(constants or {})}
        self.size = question.got.size
        # A lane of a warp has WORDS words of each.
        self.tile = 32 * self.constants["WORDS"] * (2 if question.got.dtype.itemsize == 2 else 1)
        self.origin, whole = self._vectors()
        self.tiles = 1 + -(-(self.size - self.origin) // self.tile)
        seeds = min(SEEDS, -(-whole // 16))
        self.peers = range(1 + seeds, 1 + whole) if whole > seeds else range(self.tiles, self.tiles)
        most, rest = self.constants["WALKERS"] * device.multiprocessors, self.tiles - self.peers.start
        self.blocks = [min(most, self.peers.start), 0, min(most, rest)]
        if self.peers:
            self.blocks[1] = self.constants["RESIDENT"] * device.multiprocessors
        self._taken: list[int] = []
        self.rows = self._take(8 * _ROW * sum(self.blocks))
        # What each sweep begins with as zeros lies side by side: so that one memset does.
        self._zeros = 8 * (_COUNTS + 4) + 5 * self.tiles
        self.counts = self._take(self._zeros)
        self.floors = self.counts + 8 * _COUNTS
        self.marks = self.floors + 32
        self.left = self.marks + 4 * self.tiles
        self.task = self._take(_TASK.size)
        device.send(self.task, np.frombuffer(self._packed(), np.uint8))

    def close(self) -> None:
        """Give the memory back."""
        while self._taken:
            self.device.free(self._taken.pop())

    def sweep(self) -> None:
        """Ask the device for the pass over both tensors, and do not wait for it."""
        self.device.zero(self.counts, self._zeros)
        before, fast, after = self.blocks
        self._walk(before, 0, None, None, (0, self.peers.start))
        if self.peers:
            name = _PEERS[format_of(self.question.got.dtype).name]
            skipped = self.origin * self.question.got.dtype.itemsize
            tensors = self.question.got.address + skipped, self.question.want.address + skipped
            addresses = (self.task, *tensors, self._row(before), self.counts, self.left)
            self._launch(name, fast, addresses, (self.peers.start, self.peers.stop))
            self._walk(after, before + fast, None, self.left, (self.peers.start, self.tiles))

    def answer(self) -> Comparison:
        """The findings of the last sweep."""
        rows = np.empty((sum(self.blocks), _ROW), np.uint64)
        found = np.empty(_COUNTS, np.uint64)
        self.device.fetch(self.rows, rows)
        self.device.fetch(self.counts, found)
        counts, values = measure_numpy.fresh()
        counts[_COUNTED] = found[: len(_COUNTED)]
        counts[measure_numpy.HISTOGRAM :] = found[len(_COUNTED) : _NOTED]
        reals = rows.view(np.float64)
        for column, sum_of in _SUMS:
            values[sum_of] = reals[:, column].sum()
        for column, largest in _LARGEST:
            values[largest] = reals[:, column].max()
        cells = self._failures(counts) if counts[measure_numpy.BAD] else None
        if counts[measure_numpy.CLASS_BAD]:
            counts[measure_numpy.FIRST_CLASS] = rows[:, _FIRST_CLASS].min()
        self._records(rows, counts, values)
        return Comparison(report(self.size, counts, values, scored=self.question.sigma is not None), cells)

    def notes(self) -> dict[str, int]:
        """Tiles that the kernel of peers left to walk in the last sweep, or looked at twice, and why.

        Left were those that are `unusual` (not finite, too large or too small for float32) or `failing` (not within
        budget). In all others a `ratio`, `rho`, error in `ulps` or `error` might have been the largest so far, or some
        distances were too `far` for the table of small ones. `unclear` are tiles of a 16-bit format that one
        glance did not decide. A tile may have several reasons.
        """
        found = np.empty(_COUNTS, np.uint64)
        self.device.fetch(self.counts, found)
        return dict(zip(_NOTES, map(int, found[_NOTED:]), strict=True))

    def _vectors(self) -> tuple[int, int]:
        """Elements before tile 1, and how many tiles the kernel of peers could take."""
        q, size = self.question, self.question.got.dtype.itemsize
        plainly = q.slope is not None and q.accept is None and q.sigma is None
        if not plainly or format_of(q.got.dtype).name not in _PEERS:
            return 0, 0
        assert q.slope is not None
        budgets = (float(q.error) if not isinstance(q.error, Tensor) else math.nan, q.slope)
        shift = -q.got.address % 16
        if shift != -q.want.address % 16 or not all(b == 0 or 2.0**-100 <= b <= 2.0**60 for b in budgets):
            return 0, 0  # in float32 such budgets would vanish or overflow
        origin = min(shift // size, self.size)
        return origin, (self.size - origin) // self.tile

    def _take(self, size: int) -> int:
        self._taken.append(self.device.take(size))
        return self._taken[-1]

    def _row(self, block: int) -> int:
        return self.rows + 8 * _ROW * block

    def _walk(
        self, blocks: int, row: int, tiles: int | None, left: int | None, span: tuple[int, int], counts: int = 0
    ) -> None:
        known = (self.question.got.dtype.name, self.question.want.dtype.name) == ("float32", "float64")
        name = "walk_float32" if known else "walk"
        self._launch(name, blocks, (self.task, self._row(row), counts or self.counts, tiles, left), span)

    def _launch(self, kernel: str, blocks: int, addresses: Sequence[int | None], numbers: Sequence[int]) -> None:
        arguments: list[Argument] = [ctypes.c_void_p(a) for a in addresses]
        arguments += [ctypes.c_int(n) for n in numbers]
        self.device.launch(kernel, blocks, self.constants["BLOCK"], arguments)

    def _packed(self) -> bytes:
        q, facts = self.question, measure_numpy.facts_of(format_of(self.question.got.dtype).name)
        rows = [r.address if isinstance(r, Tensor) else 0 for r in (q.error, q.accept, q.sigma)]
        error, mask, sigma = (
            default if r is None or isinstance(r, Tensor) else r
            for r, default in ((q.error, 0.0), (q.accept, -1), (q.sigma, -1.0))
        )
        return _TASK.pack(
            *(q.got.address, q.want.address, *rows, self._table(), self.marks, self.floors),
            *(float(error), q.slope or 0.0, float(sigma), int(mask)),
            *(_kind(q.got.dtype), _kind(q.want.dtype), q.slope is not None),
            *(self.size, self.origin, self.tile, *(_cut(q) if self.size else (1, 1, 1, 1))),
            *(int(facts[measure_numpy.MODE]), int(facts[measure_numpy.DIGITS])),
            *(
                float(facts[i])
                for i in (
                    measure_numpy.HALF,
                    measure_numpy.EMIN,
                    measure_numpy.EMAX,
                    measure_numpy.TOP,
                    measure_numpy.OVERFLOW,
                )
            ),
            int(facts[measure_numpy.HAS_INF]),
        )

    def _table(self) -> int:
        """Address of the values of all bit patterns of an 8-bit float, or 0."""
        if _kind(self.question.got.dtype) != _TABLE:
            return 0
        table = measure_numpy.table_of(format_of(self.question.got.dtype).name)
        address = self._take(table.nbytes)
        self.device.send(address, table)
        return address

    def _failures(self, counts: measure_numpy.Ints) -> NDArray[np.int64]:
        """Note the first failing elements; how many fail in each cell."""
        marks, tile = np.empty(self.tiles, np.uint32), self.tile
        self.device.fetch(self.marks, marks)
        failing = np.flatnonzero(marks).astype(np.uint32)
        shown = min(measure_numpy.FIRST_BADS, failing.size)
        width, tall, _, columns = _cut(self.question)
        cells = np.zeros((-(-(self.size // width) // tall), columns), np.int64)
        bad = np.zeros(shown * tile, np.uint8)
        taken = [self.device.take(a.nbytes) for a in (failing, bad, cells)]
        device_rows: tuple[Array, ...] = (failing, bad, cells)
        for address, row in zip(taken, device_rows, strict=True):
            self.device.send(address, row)
        self._launch("locate", failing.size, (self.task, *taken), (shown,))
        self.device.fetch(taken[1], bad)
        self.device.fetch(taken[2], cells)
        for address in taken:
            self.device.free(address)
        at = np.flatnonzero(bad)[: measure_numpy.FIRST_BADS]
        first = [self._begin(int(failing[i // tile])) + int(i % tile) for i in at]
        counts[measure_numpy.FIRST_BAD : measure_numpy.FIRST_BAD + len(first)] = first
        return cells

    def _begin(self, tile: int) -> int:
        return self.origin + (tile - 1) * self.tile if tile else 0

    def _records(self, rows: NDArray[np.uint64], counts: measure_numpy.Ints, values: measure_numpy.Reals) -> None:
        """The largest of each, and its first element: where only a tile is known, that is walked once more."""
        before, fast, _ = self.blocks
        rough = np.zeros(len(rows), np.bool_)
        rough[before : before + fast] = True
        wanted: dict[int, tuple[int, int, int]] = {}
        for column, value, at in (*_RECORDS, (_ULP, -1, measure_numpy.ULP_AT)):
            # All are >= 0 and no NaN, so that patterns are ordered as their numbers.
            top = rows[:, column].max()
            best = rows[:, column] == top
            exact, tile = (int(rows[best & kind, column + 1].min(initial=_NOWHERE)) for kind in (~rough, rough))
            if value < 0:
                counts.view(np.uint64)[measure_numpy.ULP] = top
            else:
                values[value] = top.view(np.float64)
            counts[at] = exact if top and exact != _NOWHERE else -1
            if top and tile != _NOWHERE and (exact == _NOWHERE or tile < exact):
                wanted[at] = (column, int(top), tile)
        if wanted:
            self._refine(wanted, counts)

    def _refine(self, wanted: Mapping[int, tuple[int, int, int]], counts: measure_numpy.Ints) -> None:
        begins = sorted({begin for _, _, begin in wanted.values()})
        tiles = np.array([1 + (b - self.origin) // self.tile for b in begins], np.uint32)
        rows, unused = np.empty((len(tiles), _ROW), np.uint64), self.device.take(8 * _COUNTS)
        listed = self.device.take(tiles.nbytes)
        self.device.send(listed, tiles)
        self.device.zero(unused, 8 * _COUNTS)
        self._walk(len(tiles), 0, listed, None, (0, len(tiles)), unused)
        self.device.fetch(self.rows, rows)
        for address in (unused, listed):
            self.device.free(address)
        for at, (column, top, begin) in wanted.items():
            row = rows[begins.index(begin)]
            if int(row[column]) != top:
                raise InternalError(f"the oracle's GPU: a tile at {begin} does not have the largest value found in it")
            place = int(row[column + 1])
            counts[at] = place if counts[at] < 0 else min(place, int(counts[at]))


def compare(device: Device, question: Question, constants: Mapping[str, int] | None = None) -> Comparison:
    """Answer one question; constants: those of measure.cu that the device has other values of.

    Raises UsageError if its parts do not go together.
    """
    if not question.got.size:
        question.check()
        return Comparison(report(0, *measure_numpy.fresh(), scored=question.sigma is not None), None)
    with closing(Plan(device, question, constants)) as plan:
        plan.sweep()
        return plan.answer()
