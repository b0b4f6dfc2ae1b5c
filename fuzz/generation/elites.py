"""MAP-elites over the error landscape: in every cell, the case that came closest to the line.

A cell is (op, subject, dtype, coarse shape class); an elite is the passing case with the largest finite rho there. The
table is a fold over its admissions, so any state it ever had can be rebuilt from the journal. What is always declined
(fuzz/generation/declines.py) is learned likewise, and stands in the same journal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from kernel_assay.corpus.model.campaign import Tried
from kernel_assay.fuzz.generation.declines import Declines, Tries

LEAST_LEAD, MOST_LEAD, LEAD_SHARE = 2, 64, 4
"""How far the search may run ahead of the elites it knows: a quarter of the batches so far, within these limits. So as
many batches can be under way at once, and which cases there are does not depend on how many are."""
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


_FIELDS = tuple(field.name for field in fields(Elite))


def seen_by(batch: int, most_lead: int = MOST_LEAD) -> int:
    """The last batch whose elites a batch may use; negative: it uses none."""
    return batch - min(most_lead, max(LEAST_LEAD, batch // LEAD_SHARE))


class Elites:
    """All admissions so far, and for every op what was visible when."""

    def __init__(
        self,
        admissions: Iterable[dict[str, Any]] = (),
        most_lead: int = MOST_LEAD,
        tried: Mapping[str, Tried] | None = None,
    ) -> None:
        """admissions: lines of a journal, in their order; most_lead and tried: as the run's record has them."""
        self._declines = Declines(tried or {})
        self._weighed: set[tuple[int, str, str]] = set()
        self._refused: dict[str, list[tuple[int, frozenset[str]]]] = {}
        """By op: traits that were left out, from some batch on."""
        self._best: dict[str, Elite] = {}
        self._recent: dict[str, list[Elite]] = {}
        """Cell -> its admissions, without those that no batch can see any more."""
        self._admissions: dict[str, tuple[array[int], list[str]]] = {}
        """Op -> the batch and the cell of every admission."""
        self._most_lead = most_lead
        self.learn(admissions)

    def learn(self, admissions: Iterable[dict[str, Any]]) -> None:
        """Take in what was admitted elsewhere, in its order."""
        for said in admissions:
            if "trait" in said:
                self._leave_out(said)
            else:
                self._admit(Elite(**{**said, "choices": tuple(said["choices"])}))

    def weigh(self, batch: int, tries: Mapping[str, Tries]) -> list[dict[str, Any]]:
        """Take in what was declined in a batch, to be called in their order; the journal's lines for it."""
        found = [
            {"op": op, "trait": trait, "out": out, "batch": batch}
            for op, trait, out in self._declines.weigh(tries)
            if (batch, op, trait) not in self._weighed  # it is, after a kill, if the journal is ahead of the record
        ]
        self.learn(found)
        return found

    def refused(self, op: str, batch: int) -> frozenset[str]:
        """Traits that cases of a batch are drawn without."""
        history = self._refused.get(op, [])
        visible = bisect_right(history, seen_by(batch, self._most_lead), key=lambda change: change[0])
        return history[visible - 1][1] if visible else frozenset()

    def worth(self, cell: str, rho: float) -> bool:
        """Whether a passing case beats its cell."""
        best = self._best.get(cell)
        return 0.0 < rho <= 1.0 and (best is None or rho >= best.rho * GAIN)

    def offer(self, elite: Elite) -> dict[str, Any] | None:
        """Admit a case if it beats its cell; the journal's line for it, or None."""
        if not elite.choices or not self.worth(elite.cell, elite.rho):
            return None
        self._admit(elite)
        recent, last = self._recent[elite.cell], seen_by(elite.batch, self._most_lead)
        while len(recent) > 1 and recent[1].batch <= last:  # who picks from now on does so for a later batch
            del recent[0]
        return {name: getattr(elite, name) for name in _FIELDS}

    def pick(self, op: str, batch: int, random: Random) -> Elite | None:
        """An elite of the op that is visible in a batch: a cell at random, then its best at that time."""
        batches, cells = self._admissions.get(op, _NONE)
        last = seen_by(batch, self._most_lead)
        visible = bisect_right(batches, last)
        if not visible:
            return None
        recent = self._recent[cells[int(random.random() * visible)]]
        return next(e for e in reversed(recent) if e.batch <= last)

    def __len__(self) -> int:
        """Number of cells that have an elite."""
        return len(self._best)

    def _leave_out(self, said: dict[str, Any]) -> None:
        history = self._refused.setdefault(said["op"], [])
        now, trait = history[-1][1] if history else frozenset[str](), frozenset({said["trait"]})
        history.append((said["batch"], now | trait if said["out"] else now - trait))
        self._weighed.add((said["batch"], said["op"], said["trait"]))

    def _admit(self, elite: Elite) -> None:
        self._best[elite.cell] = elite
        recent = self._recent.setdefault(elite.cell, [])
        recent.append(elite)
        batches, cells = self._admissions.setdefault(elite.op, (array("q"), []))
        batches.append(elite.batch)
        cells.append(recent[0].cell)  # one text for all admissions


_NONE: tuple[array[int], list[str]] = (array("q"), [])
