"""From a failing case to a finding: confirm it, shrink it, learn its gates, file it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from corpus.records import Case, Finding, State, Subject, Verdict
from fuzz.check import Examiner, Inquiry
from fuzz.gates import learn_gates
from fuzz.shrinking import SLOW, Other, Shrinker, shrink
from fuzz.subjects import fitting
from kernels.environment import environment

CONFIRMATIONS = 5
"""Times a failure is run again, alone, before it is called confirmed."""
SLOW_CONFIRMATIONS = 1
"""The same for crashes and timeouts, which the sandbox has already seen twice or which take long."""
PROBE_SECONDS = 1.0
"""Time for the gates, beside the time for shrinking."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failing case as the search met it."""

    case: Case
    subject: Subject
    verdict: Verdict
    found_by: str = ""


def now() -> str:
    """The time as records store it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def confirm(examiner: Examiner, failure: Failure) -> tuple[float, str]:
    """How often the failure shows when it is run again (its estimated probability), and the digest of its inputs."""
    times = SLOW_CONFIRMATIONS if failure.verdict.kind in SLOW else CONFIRMATIONS
    shrinker = Shrinker(examiner, failure.subject.key, failure.verdict)
    laws = (failure.verdict.law,) if failure.verdict.law else ()
    checked = examiner.check([Inquiry(failure.case, (failure.subject.key,), laws)] * times)
    hits = sum(shrinker.same(c.verdicts[failure.subject.key]) for c in checked)
    return hits / times, checked[0].input_digest


def investigate(
    examiner: Examiner,
    failure: Failure,
    *,
    seconds: float,
    stopping: Callable[[], bool] = lambda: False,
    on_other: Other | None = None,
) -> Finding:
    """The finding behind a failure. It is shrunk for at most so many seconds; 0 keeps the case as it is."""
    if seconds <= 0.0 and failure.verdict.kind in SLOW:
        return file(failure, failure.case, failure.verdict, "", 1.0, State.NEW)  # in a hurry: no time to hang again
    probability, digest = confirm(examiner, failure)
    if probability == 0.0:
        return file(failure, failure.case, failure.verdict, digest, probability, State.FLAKY)
    if seconds <= 0.0:
        return file(failure, failure.case, failure.verdict, digest, probability, State.CONFIRMED)
    deadline = time.monotonic() + seconds
    shrinker = Shrinker(examiner, failure.subject.key, failure.verdict, deadline, stopping, on_other)
    small = shrink(shrinker, failure.case)
    shrinker.deadline = time.monotonic() + PROBE_SECONDS
    gates = () if stopping() or shrinker.seeds > 1 else learn_gates(shrinker, small.case)
    verdict = _blamed(examiner, failure.subject, small.case, small.verdict)
    done = State.CONFIRMED if stopping() else State.MINIMIZED  # an interrupted one is shrunk again when it is met again
    state = done if probability == 1.0 else State.FLAKY
    return file(failure, small.case, verdict, small.input_digest, probability, state, gates)


def _blamed(examiner: Examiner, subject: Subject, case: Case, verdict: Verdict) -> Verdict:
    """The verdict with what the other, well-meaning subjects say about the smallest case."""
    others = fitting((s for s in examiner.subjects.values() if not s.planted and s.key != subject.key), case)
    if not others or verdict.kind in SLOW:
        return verdict
    checked = examiner.check([Inquiry(case, (subject.key, *others))])[0]
    return verdict.but(blame=checked.verdicts[subject.key].blame)


def file(
    failure: Failure,
    case: Case,
    verdict: Verdict,
    input_digest: str,
    probability: float,
    state: State,
    gates: Sequence[str] = (),
) -> Finding:
    """The record of it."""
    assert verdict.signature is not None
    assert failure.verdict.signature is not None
    return Finding(
        signature=verdict.signature,
        aliases=(failure.verdict.signature.key,),
        case=case,
        original=failure.case,
        subject=failure.subject,
        verdict=verdict,
        environment=environment(),
        input_digest=input_digest,
        probability=probability,
        gates=tuple(gates),
        first_seen=now(),
        last_seen=now(),
        found_by=failure.found_by,
        state=state,
    )
