"""The interfaces of stores: what a run needs, and what all commands need.

corpus/storage/file_store.py is the store on disk, corpus/storage/sql/store.py the one in a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.timing import TimingRun
from kernel_assay.corpus.storage.place import Place
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

    def regressions(self) -> Sequence[tuple[Path | str, Finding]]:
        """The findings that are kept for good, and where: a file, or a name."""

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


class CorpusStore(RunStore, Protocol):
    """A store as commands use it. Where it keeps a record is a file, or words for people."""

    def __enter__(self) -> Self:
        """The store; nothing is prepared."""

    def __exit__(self, *_: object) -> None:
        """Close it."""

    def close(self) -> None:
        """Let go of what is open, and of runs."""

    @property
    def place(self) -> Place:
        """Its place, by which another process opens it."""

    def exists(self) -> bool:
        """Whether there is anything at its place."""

    def all_findings(self) -> list[Finding]:
        """All findings, those that others have committed among them."""

    def finding(self, id_or_prefix: str) -> Finding:
        """The one finding whose id begins so. Raises UsageError if none does, or several do."""

    def promote(self, finding: Finding) -> Path | str:
        """Keep a finding for good; where."""

    def kept(self, name: str) -> list[Kept]:
        """Outputs that were kept under a name."""

    def kept_names(self) -> list[str]:
        """Findings and runs of which outputs were kept."""

    def drop_kept(self, name: str) -> None:
        """Forget what was kept under a name."""

    def load_run(self, name: str) -> Campaign:
        """The run as of its last checkpoint. Raises UsageError if there is none of that name."""

    def latest_run(self) -> Campaign | None:
        """The run that was updated last."""

    def drop_run(self, run: str) -> None:
        """Forget a run, its journals, and what was kept of it. Raises UsageError if somebody goes on with it."""

    def save_proof(self, proof: Proof) -> Path | str:
        """Write what is known of every input; where."""

    def proof_path(self, proof: Proof) -> Path | str:
        """Where a proof is kept."""

    def save_timing(self, run: TimingRun) -> Path | str:
        """Write the times of a run; where."""

    def timing(self, name: str) -> TimingRun:
        """The times of a run. Raises UsageError if there are none."""

    def timings(self) -> list[str]:
        """Names of the runs with times, the oldest first."""

    def timing_path(self, name: str) -> Path | str:
        """Where times are kept."""

    def matrices(self) -> list[str]:
        """Names of all runs of matrices, the oldest first."""

    def matrix_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a matrix's journal, in order."""

    def matrix_line(self, name: str, record: dict[str, Any]) -> None:
        """Append a line to a matrix's journal; on return no kill can lose it."""

    def dump(self) -> Iterator[tuple[str, str]]:
        """Yield all that is kept as the files of a folder: their paths below it, and their texts."""

    def load(self, files: Iterable[tuple[str, str]]) -> int:
        """Take what `dump` of a store has given; how many files."""
