"""Runs of test matrices on disk: local/matrices/<name>.jsonl, its plan and then a line a cell, safe from a kill."""

from __future__ import annotations

from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.atomic_files import Journal, read_lines
from kernel_assay.corpus.storage.matrix_record import CellResult, MatrixRun
from kernel_assay.corpus.storage.reading import record_from


class MatrixJournal:
    """The journals of one corpus."""

    def __init__(self, root: Path) -> None:
        """root: the folder of the corpus."""
        self._folder = root / "local" / "matrices"

    def names(self) -> list[str]:
        """Names of all runs of matrices, the oldest first."""
        return sorted(path.stem for path in self._folder.glob("*.jsonl"))

    def begin(self, run: MatrixRun) -> Journal:
        """Open the journal of a run, which is new or goes on."""
        journal = Journal(self._path(run.name))
        if not read_lines(self._path(run.name)):
            journal.append(run.plain())
            journal.sync()
        return journal

    def read(self, name: str) -> MatrixRun:
        """A run with all that its journal has. Raises UsageError for one that is not there, or is no longer whole."""
        path = self._path(name)
        lines = read_lines(path)
        if not lines:
            raise UsageError(f"there is no run {name!r} of a matrix in {self._folder}")
        run = record_from(lines[0], MatrixRun, str(path))
        found = [record_from(line, CellResult, str(path)) for line in lines[1:]]
        return run.updated({one.cell.name: one for one in found})

    def latest(self) -> MatrixRun | None:
        """The run that began last."""
        return self.read(names[-1]) if (names := self.names()) else None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"
