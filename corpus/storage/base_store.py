"""What every store does alike, whatever it keeps its records in."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.model.exhaustive_result import Proof
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.storage.reading import record_of
from kernel_assay.corpus.storage.saved_outputs import Kept

JOURNALS = ("pending", "elites", "coverage")
"""Kinds of journal that a run keeps."""


MATRIX = "matrix"
"""The kind of the journal that a run of a test matrix is."""


def one_line(data: dict[str, Any]) -> str:
    """JSON data as a line of a journal, without its end."""
    return json.dumps(data, separators=(",", ":"))


def indented(data: dict[str, Any]) -> str:
    """JSON data as a file for people."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def component(name: str, what: str) -> str:
    """The name, if it may become a folder or file. Raises UsageError."""
    if not re.fullmatch(r"\w[\w.+-]{0,99}", name, re.ASCII):
        raise UsageError(f"{what} {name!r} cannot name a folder; use at most 100 letters, digits and _ . + -")
    return name


def journal_kind(kind: str) -> str:
    """The kind, if a run keeps such a journal. Raises InternalError."""
    if kind not in JOURNALS:
        raise InternalError(f"a run keeps no journal {kind!r}, only {' and '.join(JOURNALS)}")
    return kind


def safe(name: str) -> str:
    """The name as part of a file's: short, and without what a path or a shell takes for something else."""
    return re.sub(r"[^\w.+=@-]", "_", name, flags=re.ASCII)[:150]


def stem(finding: Finding) -> str:
    """The signature; one that is too long or too strange for a file name is told apart by its id."""
    key = finding.signature.key
    return key if safe(key) == key else f"{safe(key)}-{finding.id}"


def proof_file(proof: Proof) -> str:
    """Name of the file in which a proof is kept, without its suffix."""
    return safe(proof.subject.name.replace(":", "-"))


def promoted_path(finding: Finding) -> str:
    """`regressions/<op>/<signature>-<case>.json`."""
    return f"regressions/{component(finding.signature.op, 'op')}/{stem(finding)}-{finding.case.id}.json"


def promoted(finding: Finding, old: Finding | None) -> Finding:
    """The finding as it is kept for good: state REGRESSION if it was fixed once, else OPEN.

    If the same case is there already, its `expect` and the earlier first_seen stay.
    """
    guard = finding.state in {State.FIXED, State.REGRESSION}
    kept = finding.but(state=State.REGRESSION if guard else State.OPEN)
    if old is None:
        return kept
    seen = min(filter(None, (old.first_seen, finding.first_seen)), default="")
    return kept.but(expect=old.expect, first_seen=seen)


def amended(committed: Finding, finding: Finding) -> Finding:
    """A committed copy of a finding, with what a person has decided about it since."""
    said = {name: getattr(finding, name) for name in ("expect", "reason", "expires", "state", "history")}
    return committed.but(**said)


def as_committed(finding: Finding, committed: Finding) -> Finding:
    """The finding, with what was committed about it: whether it may fail, why, and until when."""
    return finding.but(expect=committed.expect, reason=committed.reason, expires=committed.expires)


def kept_of(lines: Sequence[str], where: str) -> list[Kept]:
    """The outputs that were kept in these lines. Raises UsageError for those that were edited."""
    found = [record_of(line, Kept, where) for line in lines]
    for each in found:
        try:
            each.outputs()
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
    return found


class BaseStore(ABC):
    """Finds records among those that a store keeps. Use it as a context manager: nothing is prepared by that."""

    def __enter__(self) -> Self:
        """The store; nothing is prepared, because a reader may not write."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    @abstractmethod
    def name(self) -> str:
        """A word for it in messages."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open, and of runs."""

    @abstractmethod
    def findings(self, op: str | None = None) -> list[Finding]:
        """All findings, or those of one op, sorted by op and signature."""

    @abstractmethod
    def regressions(self) -> Sequence[tuple[Path | str, Finding]]:
        """The findings that are kept for good, and where."""

    @abstractmethod
    def runs(self) -> list[str]:
        """Names of all runs, sorted."""

    @abstractmethod
    def read_journal(self, run: str, kind: str) -> list[dict[str, Any]]:
        """The lines of a journal, in order."""

    @abstractmethod
    def _beginning_with(self, prefix: str) -> list[Finding]:
        """Findings that were found here and whose id begins so."""

    @abstractmethod
    def _run(self, name: str) -> Campaign | None:
        """The record of a run, without what its journals know."""

    @abstractmethod
    def _last(self, *, unfinished: bool) -> Campaign | None:
        """The record of the run that was updated last."""

    def all_findings(self) -> list[Finding]:
        """All findings, those that others have committed among them."""
        local = self.findings()
        known = {f.id for f in local}
        committed = {f.id: f for _, f in self.regressions() if f.id not in known}
        return sorted([*local, *committed.values()], key=lambda f: (f.signature.op, f.signature.key))

    def finding(self, id_or_prefix: str) -> Finding:
        """The one finding whose id begins so, local or committed. Raises UsageError if none does, or several do."""
        found = {f.id: f for f in self._beginning_with(id_or_prefix)}
        for _, committed in self.regressions():
            if committed.id.startswith(id_or_prefix):
                found.setdefault(committed.id, committed)
        if not found:
            raise UsageError(f"no finding in {self.name} has an id that begins with {id_or_prefix!r}")
        if len(found) > 1:
            ids = ", ".join(sorted(found)[:5])
            raise UsageError(
                f"{len(found)} findings have an id that begins with {id_or_prefix!r} ({ids}); give more of it"
            )
        return next(iter(found.values()))

    def load_run(self, name: str) -> Campaign:
        """The run as of its last checkpoint. Raises UsageError if there is none of that name."""
        record = self._run(component(name, "run"))
        if record is None:
            known = ", ".join(self.runs()) or "none"
            raise UsageError(f"there is no run {name!r} in {self.name}; the known ones are: {known}")
        return record if record.coverage else record.but(coverage=self.covered(record).flat())

    def covered(self, record: Campaign) -> Coverage:
        """Coverage of a run, by its journal; by its record, if it began before there was one."""
        found = Coverage.read(self.read_journal(record.run, "coverage"), record.next_index)
        return found if found.size else Coverage.of(record.coverage)

    def latest_unfinished(self) -> Campaign | None:
        """The unfinished run that was updated last."""
        last = self._last(unfinished=True)
        return None if last is None else self.load_run(last.run)

    def latest_run(self) -> Campaign | None:
        """The run that was updated last."""
        last = self._last(unfinished=False)
        return None if last is None else self.load_run(last.run)
