"""A store of one short run in memory: nothing is written, and nothing is left when it is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.merging import merge
from kernel_assay.corpus.storage.saved_outputs import Kept


class MemoryStore:
    """Keeps what a `RunStore` keeps, for one process and one run at a time, which nobody goes on with."""

    name = "memory"
    keeps_outputs = False
    """Nobody can ask for outputs that are kept, so none are kept."""

    def __init__(self) -> None:
        self._runs: dict[str, Campaign] = {}
        self._findings: dict[str, Finding] = {}
        self._journals: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self._sizes: dict[str, int] = {}
        """Bytes of outputs that were to be kept; nobody could ask for them."""

    def prepare(self) -> None:
        """Do nothing: there is always room."""

    def runs(self) -> list[str]:
        """Names of all runs, sorted."""
        return sorted(self._runs)

    def latest_unfinished(self) -> Campaign | None:
        """None: what is in memory ends with its run."""
        return None

    def hold(self, run: str) -> None:
        """Do nothing: no other process sees the run."""

    def start_run(self, campaign: Campaign) -> None:
        """Begin the record of a run."""
        self.checkpoint(campaign)

    def checkpoint(self, campaign: Campaign) -> int:
        """Replace the record of a run; 0, for no bytes were written."""
        self._runs[campaign.run] = campaign
        return 0

    def covered(self, record: Campaign) -> Coverage:
        """Coverage of a run as its record has it: no other session has added to it."""
        return Coverage.of(record.coverage)

    def journal(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Append a line to one of a run's journals; 0, for no bytes were written."""
        self._journals[run, kind].append(record)
        return 0

    def compact(self, run: str, kind: str, record: dict[str, Any]) -> int:
        """Replace all lines of a journal by one; 0, for no bytes were written."""
        self._journals[run, kind] = [record]
        return 0

    def end_journal(self, run: str, kind: str) -> None:
        """Remove a journal."""
        self._journals.pop((run, kind), None)

    def read_journal(self, run: str, kind: str) -> list[dict[str, Any]]:
        """The lines of a journal, in order."""
        return list(self._journals[run, kind])

    def findings(self, op: str | None = None) -> list[Finding]:
        """The findings, of an op or of all, sorted by op and signature."""
        found = [f for f in self._findings.values() if op in {None, f.signature.op}]
        return sorted(found, key=lambda f: (f.signature.op, f.signature.key))

    def regressions(self) -> Sequence[tuple[Path | str, Finding]]:
        """Nothing: none is kept for good."""
        return ()

    def save_finding(self, finding: Finding) -> Finding:
        """Merge a finding into what is stored under its signature, and return the result. See merge."""
        before = self._findings.get(finding.id)
        self._findings[finding.id] = kept = finding if before is None else merge(before, finding)
        return kept

    def amend(self, finding: Finding) -> Finding:
        """Replace a finding's text; what is stored now."""
        self._findings[finding.id] = finding
        return finding

    def has(self, finding: Finding) -> bool:
        """Whether there is a finding of this id."""
        return finding.id in self._findings

    def drop(self, finding: Finding) -> None:
        """Forget a finding that another one has taken the place of."""
        self._findings.pop(finding.id, None)
        self._sizes.pop(finding.id, None)

    def keep(self, name: str, kept: Sequence[Kept]) -> None:
        """Note how much would be kept under the name of a run or a finding."""
        self._sizes[name] = sum(each.size for each in kept)

    def kept_size(self, name: str) -> int:
        """Bytes of what would be kept under a name; 0 if nothing was."""
        return self._sizes.get(name, 0)
