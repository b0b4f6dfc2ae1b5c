"""Shadow memory of one launch: of every element who wrote it and who read it, two of each, as stamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_assay.kernels.backends.triton_cpu.happens_before import ATOMIC, SILENT, Mask, Order, Stamps

Addresses = NDArray[np.uint64]
_WRITES, _READS = (0, 1), (2, 3)
"""Where the stamps of two accesses are kept."""
_MOST_WAITING = 1 << 22


@dataclass(frozen=True, slots=True)
class Clash:
    """Two accesses that nothing orders."""

    number: int
    """Of the address, among those of the later access."""
    other: int
    """The stamp of the earlier one."""
    other_wrote: bool
    benign: bool
    """Whether no write has changed anything."""


class Shadow:
    """The shadow of a piece of memory, from one address to before another."""

    def __init__(self, start: int, stop: int, grain: int) -> None:
        """grain: bytes of its smallest element."""
        self.start, self.stop = start // grain * grain, stop
        self._grain = grain
        cells = -(-(stop - self.start) // grain)
        self._slots = np.zeros((4, cells), np.int64)
        self._used = [False] * 4
        self._tokens = np.zeros(cells, np.int32)
        self._waiting: list[tuple[Addresses, int, int]] = []
        """Reads while nobody had written yet: most memory is an input, and stays so."""
        self._held = 0

    def read(self, at: Addresses, width: int, stamp: int, order: Order) -> Clash | None:
        """Note that a program reads `width` bytes at each address."""
        if not self._used[0]:
            self._waiting.append((at, width, stamp))
            self._held += at.size
            if self._held > _MOST_WAITING:
                self._settle(order)
            return None
        cells, times = self._cells(at, width)
        clash = self._clash(cells, times, _WRITES, stamp, order)
        self._note(_READS, cells, stamp, order)
        return clash

    def write(self, at: Addresses, width: int, stamp: int, order: Order, changed: Mask) -> Clash | None:
        """Note that a program writes there. changed: a mask of the addresses at which it makes a difference."""
        self._settle(order)
        cells, times = self._cells(at, width)
        changed = np.repeat(changed, times)
        clash = self._clash(cells, times, _WRITES + _READS, stamp, order, changed)
        last, new, same = self._slots[0], cells[changed], cells[~changed]
        last[same[last[same] == 0]] = stamp | SILENT
        last[new] = stamp
        self._used[0] = True
        for slot in (1, 2, 3):
            if self._used[slot]:
                self._slots[slot][new] = 0
        return clash

    def update(self, at: Addresses, width: int, stamp: int, order: Order) -> Clash | None:
        """Note that a program reads and writes there by an atomic operation."""
        self._settle(order)
        cells, times = self._cells(at, width)
        clash = self._clash(cells, times, _WRITES + _READS, stamp, order, np.ones(len(cells), np.bool_))
        self._note(_WRITES, cells, stamp, order)
        return clash

    def acquire(self, at: Addresses, width: int, order: Order) -> None:
        """Let the program come after those who released there."""
        order.acquire(self._tokens[self._cells(at, width)[0]])

    def release(self, at: Addresses, width: int, order: Order, *, anew: bool) -> None:
        """Let those who acquire there come after the program. anew: and not after those who released before it."""
        cells = self._cells(at, width)[0]
        self._tokens[cells] = order.release(self._tokens[cells] * (not anew))

    def _cells(self, at: Addresses, width: int) -> tuple[NDArray[np.intp], int]:
        """Numbers of the elements there, and how many there are for each address."""
        if width < self._grain:
            self._refine(width)
        cells = ((at - np.uint64(self.start)) // np.uint64(self._grain)).astype(np.intp)
        times = width // self._grain
        return (cells if times == 1 else (cells[:, None] + np.arange(times)).ravel()), times

    def _refine(self, grain: int) -> None:
        times = self._grain // grain
        self._slots, self._tokens = np.repeat(self._slots, times, 1), np.repeat(self._tokens, times)
        self._grain = grain

    def _settle(self, order: Order) -> None:
        """Note the reads that have waited."""
        waiting, self._waiting, self._held = self._waiting, [], 0
        for at, width, stamp in waiting:
            self._note(_READS, self._cells(at, width)[0], stamp, order)

    def _clash(
        self,
        cells: NDArray[np.intp],
        times: int,
        slots: tuple[int, ...],
        stamp: int,
        order: Order,
        changed: Mask | None = None,
    ) -> Clash | None:
        """The first access that clashes with this one; a benign one if there are no others. changed: None for reads."""
        found = None
        for slot in filter(self._used.__getitem__, slots):
            old: Stamps = self._slots[slot][cells]
            wrong = order.unordered(old)
            if stamp & ATOMIC:
                wrong &= old & ATOMIC == 0
            if not wrong.any():
                continue
            real = wrong & (old & SILENT == 0 if changed is None else changed)
            at = int(np.argmax(real if real.any() else wrong))
            clash = Clash(at // times, int(old[at]), slot in _WRITES, not real.any())
            if not clash.benign:
                return clash
            found = found or clash
        return found

    def _note(self, pair: tuple[int, int], cells: NDArray[np.intp], stamp: int, order: Order) -> None:
        """Keep an access in the first place of two if it tells more than what is there, and else in the second."""
        first, second = pair
        if not self._used[first]:
            self._slots[first][cells] = stamp
            self._used[first] = True
            return
        old = self._slots[first][cells]
        plain = not stamp & ATOMIC
        there = (old == 0) | ~order.unordered(old) & (plain | (old & ATOMIC != 0))
        self._slots[first][cells[there]] = stamp
        if not there.all():
            self._slots[second][cells[~there]] = stamp
            self._used[second] = True
