"""Counts of judged cells of coverage, by subject: in memory by sets of subjects, on disk by what has been added.

A cell is `op|dtype|shape class|layout|value class`. Most cases of an op are judged by the same few sets of subjects, so
that a count for each set takes a tenth of the room that one for each subject would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

Counts = dict[str, dict[tuple[str, ...], int]]
"""Cell -> names of subjects -> cases that these have judged together."""


class Coverage:
    """Counts that can be added up."""

    def __init__(self) -> None:
        self._all: Counts = {}
        self._added: Counts = {}
        """Since the last line was made."""
        self._sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Each set once, for all cells."""
        self.size = 0
        """Pairs of a cell and a subject."""

    def count(self, cell: str, subjects: tuple[str, ...], cases: int = 1) -> None:
        """Some cases of a cell were judged by these subjects."""
        if not subjects:
            return
        subjects = self._sets.setdefault(subjects, subjects)
        mine = self._all.setdefault(cell, {})
        if subjects not in mine:
            self.size += len({*subjects}.difference(*mine))
        mine[subjects] = mine.get(subjects, 0) + cases
        added = self._added.setdefault(cell, {})
        added[subjects] = added.get(subjects, 0) + cases

    def add(self, part: Coverage) -> None:
        """Add what came after it."""
        for cell, counts in part._all.items():
            for subjects, cases in counts.items():
                self.count(cell, subjects, cases)

    def flat(self) -> dict[str, int]:
        """`<cell>|<subject>` -> cases, as records have it."""
        found: dict[str, int] = {}
        for cell, counts in self._all.items():
            for subjects, cases in counts.items():
                for subject in subjects:
                    found[f"{cell}|{subject}"] = found.get(f"{cell}|{subject}", 0) + cases
        return found

    @classmethod
    def of(cls, flat: Mapping[str, int]) -> Self:
        """Read the counts of a record."""
        made = cls()
        for key, cases in flat.items():
            cell, _, subject = key.rpartition("|")
            made.count(cell, (subject,), cases)
        return made

    def line(self, begin: int, end: int, *, whole: bool = False) -> dict[str, Any]:
        """A line of the run's journal: what the cases from one index to before another have added.

        whole: everything, in place of all lines before.
        """
        sets: dict[tuple[str, ...], int] = {}
        counts = self._all if whole else self._added
        told = {c: [[sets.setdefault(s, len(sets)), n] for s, n in by.items()] for c, by in counts.items()}
        self._added = {}
        return {"begin": begin, "end": end, "sets": list(sets), "cells": told}

    @classmethod
    def read(cls, lines: Iterable[Mapping[str, Any]], end: int) -> Self:
        """Read what the lines of a journal say of the cases before an index.

        Of a process that was killed there may be lines that its record does not know; the next one has counted those
        cases again.
        """
        kept: list[Mapping[str, Any]] = []
        for line in reversed(list(lines)):  # so a line that was overtaken takes nothing away of those before it
            if line["end"] <= end:
                kept.append(line)
                end = line["begin"]
        made = cls()
        for line in reversed(kept):
            sets = [tuple(names) for names in line["sets"]]
            for cell, counts in line["cells"].items():
                for number, cases in counts:
                    made.count(cell, sets[number], cases)
        made._added = {}
        return made
