"""One finding out of two: what stays, what counts, and what it has become."""

from __future__ import annotations

from kernel_assay.corpus.model.findings import Event, Finding, Sanitized, State

_RANK = {
    State.NEW: 0,
    State.CONFIRMED: 1,
    State.FLAKY: 1,
    State.MINIMIZED: 2,
    State.OPEN: 3,
    State.REGRESSION: 4,
    State.FIXED: 5,  # as what is met: a replay's word counts; as what is stored: see _state
}


def merge(stored: Finding, met: Finding) -> Finding:
    """One finding out of two with the same signature; met.count is what was not counted yet.

    The smaller case wins, and with it whatever was observed on it: verdict, digest, gates, probability, exhibit,
    variants, subject and environment; what compute-sanitizer said of it, whenever it was asked. What is expected to
    fail is expected of its very case, and keeps it: another bug that looks alike must not take its place. The original
    and what a person said of it (expect, reason, expires) stay. A replay that finds a case fixed says so by saving it
    with state FIXED and count 0; when it is met again after that, it has become a REGRESSION.
    """
    best = stored if stored.expect == "fail" else min(stored, met, key=_size)
    state = _state(stored, met, best)
    return _as_last_seen(best, stored, met).but(
        aliases=tuple(sorted({*stored.aliases, *met.aliases})),
        original=stored.original,
        found_by=stored.found_by,
        count=stored.count + met.count,
        first_seen=min(filter(None, (stored.first_seen, met.first_seen)), default=""),
        last_seen=max(stored.last_seen, met.last_seen),
        sanitized=_sanitized(stored, met, best),
        state=state,
        history=_history(stored, met, best, state),
        expect=stored.expect,
        reason=stored.reason,
        expires=stored.expires,
    )


def stays(stored: Finding, met: Finding) -> bool:
    """Say whether what was observed on a finding's case stays when a failure comes down to that case or a larger one.

    met: what is known of that failure so far. A finding that is not shrunk, or is fixed, has more to be learnt.
    """
    shrunk = _RANK[State.MINIMIZED] <= _RANK[stored.state] < _RANK[State.FIXED]
    return shrunk and min(stored, met, key=_size) is stored


def _as_last_seen(best: Finding, stored: Finding, met: Finding) -> Finding:
    """Note how the case was seen to fail last: the kernel, or the oracle, may have changed."""
    if stored.case.id != met.case.id or best is met or not met.last_seen or met.last_seen < stored.last_seen:
        return best
    verdict = met.verdict.but(blame=met.verdict.blame or best.verdict.blame)
    shown = met.exhibit or best.exhibit
    cliff = met.cliff or best.cliff
    return best.but(verdict=verdict, exhibit=shown, cliff=cliff, subject=met.subject, environment=met.environment)


def _sanitized(stored: Finding, met: Finding, best: Finding) -> tuple[Sanitized, ...]:
    """The latest word of each tool on the case that is kept."""
    said = [one for f in (stored, met) if f.case.id == best.case.id for one in f.sanitized]
    return tuple({one.tool: one for one in said}.values())


def _history(stored: Finding, met: Finding, best: Finding, state: State) -> tuple[Event, ...]:
    """The known history, and one more event if the state or the smallest case is another one."""
    last = met.history[-1] if met.history else Event(at=met.last_seen, state=met.state)
    if state is not stored.state:
        return (*stored.history, last.but(state=state))
    if best.case.id != stored.case.id:
        return (*stored.history, last.but(state=state, what=_smaller(stored, best)))
    return stored.history


def _smaller(stored: Finding, best: Finding) -> str:
    before, after = stored.case.elements, best.case.elements
    return f"smaller: {before:,} -> {after:,} elements" if before != after else "plainer, of the same size"


def _size(finding: Finding) -> tuple[bool, int, int, int, int, str, int]:
    """Order by whether it shows again, then by size.

    The text makes the order total, and of one case the finding that got further wins.
    """
    case, text = finding.case, finding.case.canonical()
    exceptions = sum(len(t.specials) + len(t.pokes) for t in case.tensors.values())
    alone = (not finding.shows_again, len(finding.before))
    return (*alone, case.elements, exceptions, len(text), text, -_RANK[finding.state])


def _state(stored: Finding, met: Finding, best: Finding) -> State:
    if stored.state is State.FIXED and met.state is not State.FIXED:
        return State.REGRESSION
    if _RANK[stored.state] == _RANK[met.state]:
        return best.state  # confirmed or flaky: what was observed on the case that is kept
    return max(stored.state, met.state, key=_RANK.__getitem__)
