"""MAP-elites over the error landscape: in every cell, the case that came closest to the line.

A cell is (op, subject, dtype, coarse shape class); an elite is the passing case with the largest finite rho there. The
table is a fold over its admissions, so any state it ever had can be rebuilt from the journal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

VISIBLE_AFTER = 2
"""Batches between an admission and its first use: the pipeline's depth."""
GAIN = 1.05
"""A new elite must be better by this factor, or the journal would fill with noise."""


@dataclass(frozen=True, slots=True)
class Elite:
    """The best of a cell."""

    cell: str
    op: str
    rho: float
    batch: int
    """Batch in which it was found."""
    index: int
    choices: tuple[int, ...]


class Elites:
    """All admissions so far, and for every op what was visible when."""

    def __init__(self, admissions: Iterable[dict[str, Any]] = ()) -> None:
        self._best: dict[str, Elite] = {}
        self._history: dict[str, list[Elite]] = {}
        for said in admissions:
            self._admit(Elite(**{**said, "choices": tuple(said["choices"])}))

    def offer(
        self, cell: str, op: str, rho: float, index: int, batch: int, choices: tuple[int, ...]
    ) -> dict[str, Any] | None:
        """Admit a case if it beats its cell; the journal's line for it, or None."""
        best = self._best.get(cell)
        if not choices or not 0.0 < rho <= 1.0 or (best is not None and rho < best.rho * GAIN):
            return None
        elite = Elite(cell, op, rho, batch, index, choices)
        self._admit(elite)
        return asdict(elite)

    def pick(self, op: str, batch: int, random: Random) -> Elite | None:
        """An elite of the op that is visible in a batch: a cell at random, then its best at that time."""
        history = self._history.get(op, [])
        visible = bisect_right(history, batch - VISIBLE_AFTER, key=lambda e: e.batch)
        if not visible:
            return None
        cell = history[int(random.random() * visible)].cell
        return next(e for e in reversed(history[:visible]) if e.cell == cell)

    def __len__(self) -> int:
        """Number of cells that have an elite."""
        return len(self._best)

    def _admit(self, elite: Elite) -> None:
        self._best[elite.cell] = elite
        self._history.setdefault(elite.op, []).append(elite)
