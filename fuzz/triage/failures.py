"""Failures as the search meets them, and findings as they are filed."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pydantic_core import from_json, to_json

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Event, Exhibit, Finding, State, Variant
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.kernels.environment import environment
from kernel_assay.oracles.catalog import origin_of


def now() -> str:
    """The time as records store it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def event(state: State, what: str) -> Event:
    """Something that happens to a finding now."""
    return Event(at=now(), state=state, what=what)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing case as the search met it."""

    case: Case
    subject: Subject
    verdict: Verdict
    found_by: str = ""
    before: tuple[Case, ...] = ()
    """What the subject had run in the same process, as far as anybody remembers."""

    def plain(self) -> dict[str, Any]:
        """A line of a journal."""
        parts = {"case": self.case, "subject": self.subject, "verdict": self.verdict}
        said = {name: part.model_dump(mode="json") for name, part in parts.items()}
        return {**said, "found_by": self.found_by, "before": _packed(self.before)}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """Read a line of a journal."""
        case, subject = Case.model_validate(said["case"]), Subject.model_validate(said["subject"])
        verdict, before = Verdict.model_validate(said["verdict"]), _unpacked(str(said.get("before", "")))
        return cls(case, subject, verdict, str(said["found_by"]), before)


def _packed(cases: Sequence[Case]) -> str:
    """Many cases, which are much alike, as one word."""
    text = to_json([case.plain() for case in cases])
    return base64.b64encode(zlib.compress(text)).decode("ascii") if cases else ""


def _unpacked(word: str) -> tuple[Case, ...]:
    cases = from_json(zlib.decompress(base64.b64decode(word))) if word else ()
    return tuple(Case.model_validate(case) for case in cases)


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and the outputs of its smallest case if they are small enough to keep."""

    finding: Finding
    kept: Kept | None = None
    trouble: str = ""
    """What went wrong with us while it was looked into."""


def put_away(store: RunStore, found: Found, before: Finding | None) -> Finding:
    """Store a finding, with its outputs. before: what is stored of the same failure, and has been counted there."""
    finding = found.finding
    if before is not None:
        finding = finding.but(count=0 if finding.id == before.id else before.count)
    stored = store.save_finding(finding)
    if found.kept is not None and stored.case.id == finding.case.id:
        store.keep(stored.id, [found.kept])
    return stored


@dataclass(frozen=True, slots=True)
class Observed:
    """The record of what was seen of the case that a finding keeps."""

    case: Case
    verdict: Verdict
    digest: str = ""
    before: tuple[Case, ...] = ()
    """Of a stateful failure: what must run first."""
    probability: float = 1.0
    gates: tuple[str, ...] = ()
    exhibit: Exhibit | None = None
    variants: tuple[Variant, ...] = ()
    claim: str = ""


def file(failure: Failure, seen: Observed, events: Sequence[Event]) -> Finding:
    """The record of it."""
    assert seen.verdict.signature is not None
    assert failure.verdict.signature is not None
    return Finding(
        signature=seen.verdict.signature,
        aliases=(failure.verdict.signature.key,),
        case=seen.case,
        original=failure.case,
        before=seen.before,
        subject=failure.subject,
        verdict=seen.verdict,
        environment=environment(),
        input_digest=seen.digest,
        contract=origin_of(failure.case.op),
        exhibit=seen.exhibit,
        variants=seen.variants,
        claim=seen.claim,
        probability=seen.probability,
        gates=seen.gates,
        first_seen=now(),
        last_seen=now(),
        found_by=failure.found_by,
        state=events[-1].state,
        history=tuple(events),
    )


def coarse(verdict: Verdict) -> tuple[str, ...]:
    """The part that most likely makes two failures one bug: op, subject, kind and rule."""
    assert verdict.signature is not None
    return (verdict.signature.op, verdict.signature.subject, verdict.signature.kind.value, verdict.rule)


def met_again(known: Finding, run: str) -> Finding:
    """A finding of an earlier run, met by this one: what was fixed has come back, what was shrunk is open now."""
    became = {State.FIXED: State.REGRESSION, State.MINIMIZED: State.OPEN}.get(known.state)
    if became is None:
        return known
    return known.but(state=became, history=(*known.history, event(became, f"met again by run {run}")))
