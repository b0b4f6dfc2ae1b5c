"""Runs of test matrices in a store: the plan of each and then a line a cell, safe from a kill."""

from __future__ import annotations

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.matrix_record import CellResult, MatrixRun
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.corpus.storage.reading import record_from


class MatrixJournal:
    """The journals of one corpus."""

    def __init__(self, store: CorpusStore) -> None:
        """store: the corpus."""
        self._store = store

    def names(self) -> list[str]:
        """Names of all runs of matrices, the oldest first."""
        return self._store.matrices()

    def begin(self, run: MatrixRun) -> None:
        """Write the plan of a run, unless it goes on."""
        if not self._store.matrix_lines(run.name):
            self._store.matrix_line(run.name, run.plain())

    def add(self, run: str, result: CellResult) -> None:
        """Append what became of a cell; on return no kill can lose it."""
        self._store.matrix_line(run, result.plain())

    def read(self, name: str) -> MatrixRun:
        """A run with all that its journal has. Raises UsageError for one that is not there, or is no longer whole."""
        lines = self._store.matrix_lines(name)
        where = f"the matrix {name} in {self._store.name}"
        if not lines:
            raise UsageError(f"there is no run {name!r} of a matrix in {self._store.name}")
        run = record_from(lines[0], MatrixRun, where)
        found = [record_from(line, CellResult, where) for line in lines[1:]]
        return run.updated({one.cell.name: one for one in found})

    def latest(self) -> MatrixRun | None:
        """The run that began last."""
        return self.read(names[-1]) if (names := self.names()) else None
