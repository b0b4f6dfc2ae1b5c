"""Decisions of people about findings: that one is kept for good, or is expected to fail for a while."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.findings import Event, Finding, State
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.triage.failures import now


def promote(store: CorpusStore, finding: Finding) -> Path | str:
    """Copy a finding among the committed ones, which are replayed in CI; the file it is in.

    Raises UsageError for a finding that never showed again when it was run: it would prove nothing.
    """
    if not finding.shows_again:
        raise UsageError(f"finding {finding.id} never failed again when it was run: it cannot guard anything")
    guards = finding.state in {State.FIXED, State.REGRESSION}
    state = State.REGRESSION if guards else State.OPEN
    event = Event(at=now(), state=state, what="promoted")
    kept = store.amend(finding.but(state=finding.state if guards else state, history=(*finding.history, event)))
    return store.promote(kept)


def expect_failure(store: CorpusStore, finding: Finding, reason: str, until: str) -> Finding:
    """Take its failure for no news from now on, until a date (included) if one is given.

    Raises UsageError for an empty reason, or a date that is none or is over.
    """
    if not reason.strip():
        raise UsageError("an expected failure needs a reason; give one with --reason")
    if until:
        _check_date(until)
    words = f"expected to fail{f' until {until}' if until else ''}: {reason}"
    return _amended(store, finding, words, expect="fail", reason=reason, expires=until)


def expect_pass(store: CorpusStore, finding: Finding) -> Finding:
    """Take its failure for news again."""
    return _amended(store, finding, "expected to pass", expect="pass", reason="", expires="")


def _check_date(until: str) -> None:
    try:
        day = date.fromisoformat(until)
    except ValueError:
        raise UsageError(f"{until!r} is no date; write it as {datetime.now(UTC).date().isoformat()}") from None
    if day < datetime.now(UTC).date():
        raise UsageError(f"{until} is over; an expectation can only end in the future")


def _amended(store: CorpusStore, finding: Finding, what: str, **changes: str) -> Finding:
    event = Event(at=now(), state=finding.state, what=what)
    return store.amend(finding.but(history=(*finding.history, event), **changes))
