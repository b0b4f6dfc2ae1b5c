"""The journal of a run's coverage, written as it grows: the record of a long run has no room for it."""

from __future__ import annotations

from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.storage.protocol import RunStore

COMPACT_BYTES, COMPACT_AFTER = 4 << 20, 8
"""The journal of what was covered is written anew when it is so many times as long as it would then be."""


class CoverageJournal:
    """A journal of coverage: how far it goes, and how long it is."""

    def __init__(self, store: RunStore, run: str) -> None:
        self._store, self._run = store, run
        self._lined = 0
        """Index up to which it says what was covered; 0: that has to be said anew."""
        self._whole = self._length = 0
        """Bytes that it would have if it were written anew, and those that it has."""

    def add(self, covered: Coverage, end: int) -> int:
        """Say what was covered since it was said last; how many bytes that took. It comes before the record."""
        begin = self._lined
        written = self._store.journal(self._run, "coverage", covered.line(begin, end, whole=not begin))
        self._lined, self._length = end, self._length + written
        self._whole = self._whole if begin else written
        return written

    def keep_short(self, covered: Coverage, end: int, *, finished: bool) -> None:
        """When the record is written: a finished one says everything itself, and a long journal is written anew."""
        if finished:
            self._store.end_journal(self._run, "coverage")
        elif self._length > max(COMPACT_BYTES, COMPACT_AFTER * self._whole):
            self._length = self._whole = self._store.compact(self._run, "coverage", covered.line(0, end, whole=True))
