"""The interface that a run needs of a store; corpus/storage/file_store.py is the one on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.saved_outputs import Kept


class RunStore(Protocol):
    """Runs and findings, safe against a kill at any moment. Every method may raise UsageError if there is no room."""

    @property
    def name(self) -> str:
        """A word for it in messages."""

    def prepare(self) -> None:
        """Make it ready to be written to. Raises UsageError if that cannot be."""

    def runs(self) -> list[str]:
        """Names of all runs."""

    def latest_unfinished(self) -> Campaign | None:
        """The record of the run that was interrupted last and that nobody goes on with; None: there is none."""

    def hold(self, run: str) -> None:
        """Go on with a run: nobody else may while this process lives. Raises UsageError if somebody does."""

    def start_run(self, campaign: Campaign) -> None:
        """Begin the record of a run; nobody else may go on with it while this process lives."""

    def checkpoint(self, campaign: Campaign) -> int:
        """Replace the record of a run; about how many bytes were written."""

    def covered(self, record: Campaign) -> Coverage:
        """Coverage of a run so far, its journal included."""

    def journal(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Append a line to one of a run's journals; about how many bytes were written."""

    def compact(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Replace all lines of a journal by one; how many bytes were written."""

    def end_journal(self, run: str, kind: str) -> None:
        """Remove a journal of which nobody needs anything any more."""

    def read_journal(self, run: str, kind: str) -> list[dict[str, Any]]:
        """The lines of a journal, in order."""

    def findings(self, op: str | None = None) -> list[Finding]:
        """The findings, of an op or of all."""

    def regressions(self) -> list[tuple[Path, Finding]]:
        """The findings that are kept for good, and where."""

    def save_finding(self, finding: Finding) -> Finding:
        """Add a finding, or to the one with its signature; what is stored now."""

    def amend(self, finding: Finding) -> Finding:
        """Replace a finding's text, its counts left alone; what is stored now."""

    def has(self, finding: Finding) -> bool:
        """Whether there is a finding of this id."""

    def drop(self, finding: Finding) -> None:
        """Forget a finding that another one has taken the place of."""

    def keep(self, name: str, kept: Sequence[Kept]) -> None:
        """Keep outputs under the name of a run or a finding."""

    def kept_size(self, name: str) -> int:
        """Bytes of what was kept under a name; 0 if nothing was."""
