"""From a failing case to a finding: confirm it, shrink it, look closely, learn its gates, file it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from corpus.findings import Event, State
from corpus.records import Case, Kind, Subject, Verdict
from fuzz.check import DEAR, Examiner, Inquiry
from fuzz.filing import Failure, Found, Observed, event, file
from fuzz.gates import learn_gates
from fuzz.sanitize import automatically
from fuzz.shrinking import Other, Shrinker, is_dear, shrink
from fuzz.subjects import fitting
from fuzz.variants import variants
from oracles.large import places_of
from oracles.unclaimed import trials, unclaimed, would_excuse

CONFIRMATIONS = 5
"""Times a failure is run again, alone, before it is called confirmed."""
SLOW_CONFIRMATIONS = 1
"""The same for crashes and timeouts, which the sandbox has already seen twice or which take long, and large cases."""
LARGE_SECONDS = 20.0
"""Time for shrinking a large case beside that for any: its first steps cost about as much as the case itself."""
PROBE_SECONDS = 10.0
"""Time for the gates, beside the time for shrinking; mostly they take less than half a second."""
CRASH_PROBE_SECONDS = 30.0
"""The same where each failure costs two workers; on a GPU that is a third of a second."""


def confirm(examiner: Examiner, failure: Failure) -> tuple[int, int, str]:
    """How often the failure shows when it is run again, of how many times, and the digest of its inputs."""
    dear = is_dear(failure.verdict) or examiner.is_large(failure.case)
    times = SLOW_CONFIRMATIONS if dear else CONFIRMATIONS
    shrinker = Shrinker(examiner, failure.subject.key, failure.verdict)
    laws = (failure.verdict.law,) if failure.verdict.law else ()
    places = places_of(failure.verdict)
    checked = examiner.check([Inquiry(failure.case, (failure.subject.key,), laws, places)] * times)
    hits = sum(shrinker.same(c.verdicts[failure.subject.key]) for c in checked)
    return hits, times, checked[0].input_digest


def as_met(failure: Failure) -> Found:
    """The finding behind a failure that there is no time to run again."""
    events = [event(State.NEW, f"found by {failure.found_by or 'a replay'}")]
    return Found(file(failure, Observed(failure.case, failure.verdict), events))


def investigate(
    examiner: Examiner,
    failure: Failure,
    *,
    seconds: float,
    stopping: Callable[[], bool] = lambda: False,
    on_other: Other | None = None,
) -> Found:
    """The finding behind a failure. It is shrunk for at most so many seconds; 0 keeps the case as it is."""
    if seconds <= 0.0 and is_dear(failure.verdict):
        return as_met(failure)  # no time to hang again
    events = [event(State.NEW, f"found by {failure.found_by or 'a replay'}")]
    hits, times, digest = confirm(examiner, failure)
    probability = hits / times
    state = State.CONFIRMED if hits == times else State.FLAKY
    events.append(event(state, f"{hits} of {times} runs failed"))
    if probability == 0.0:
        return Found(file(failure, Observed(failure.case, failure.verdict, digest, probability), events))
    if seconds <= 0.0:
        seen = Observed(failure.case, failure.verdict, digest, probability)
        return _closely(examiner, failure, seen, events)
    deadline = time.monotonic() + seconds + LARGE_SECONDS * examiner.is_large(failure.case)
    shrinker = Shrinker(examiner, failure.subject.key, failure.verdict, deadline, stopping, on_other)
    small = shrink(shrinker, failure.case)
    shrinker.deadline = time.monotonic() + (CRASH_PROBE_SECONDS if is_dear(small.verdict) else PROBE_SECONDS)
    gates = () if stopping() else learn_gates(shrinker, small.case, failure.case)
    verdict = _blamed(examiner, failure.subject, small.case, small.verdict)
    if not stopping() and probability == 1.0:  # an interrupted one is shrunk again when it is met again
        events.append(event(State.MINIMIZED, f"{failure.case.elements:,} -> {small.case.elements:,} elements"))
    seen = Observed(small.case, verdict, small.input_digest, probability, gates)
    told = verdict.kind in DEAR or verdict.kind is Kind.RAISED  # who raises does not get to its kernel
    if not told and not stopping() and not examiner.is_large(small.case):
        seen = replace(seen, sanitized=automatically(small.case, failure.subject, stopping))
    return _closely(examiner, failure, seen, events)


def _closely(examiner: Examiner, failure: Failure, seen: Observed, events: list[Event]) -> Found:
    """The finding with what a person will want to see: elements, picture, who else fails."""
    look = examiner.look_at(seen.case, failure.subject.key, seen.verdict)
    others = variants(examiner, seen.case, failure.subject, seen.verdict.kind, seen.verdict.law)
    claim = _claim(examiner, failure, seen)
    return Found(file(failure, replace(seen, exhibit=look.exhibit, variants=others, claim=claim), events), look.kept)


def _claim(examiner: Examiner, failure: Failure, seen: Observed) -> str:
    """A claim under which neither the smallest case nor the one it was found with fails, in words; empty: none."""
    cases = list({case.id: case for case in (seen.case, failure.case)}.values())
    if not would_excuse(seen.verdict) or any(examiner.is_large(case) for case in cases):
        return ""
    key, others = failure.subject.key, trials(examiner.contracts[failure.case.op], failure.case)
    return unclaimed(
        [examiner.evidence(case, key) for case in cases], lambda: [examiner.evidence(case, key) for case in others]
    )


def _blamed(examiner: Examiner, subject: Subject, case: Case, verdict: Verdict) -> Verdict:
    """The verdict with what the other, well-meaning subjects say about the smallest case."""
    others = fitting((s for s in examiner.subjects.values() if not s.planted and s.key != subject.key), case)
    if not others or is_dear(verdict):
        return verdict
    checked = examiner.check([Inquiry(case, (subject.key, *others))])[0]
    return verdict.but(blame=checked.verdicts[subject.key].blame)
