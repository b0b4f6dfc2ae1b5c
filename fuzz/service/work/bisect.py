"""A finding over the commits of a repository: which one brought or fixed it, and whether one has fixed it.

Each commit is judged by a replay of the stored case. A failure that shows in a share p of the runs only is run so often
that a commit which has it passes by luck with a probability of at most a = 0.01 / s, where s is the number of replays
that the search may take: n = ceil(log(a) / log(1 - p)). With p = 0.3 and 100 commits (s = 9) that is n = 20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.protocol import SENT, JobRequest, JobState, Outcome, Progress
from kernel_assay.fuzz.service.work.checkouts import words_of
from kernel_assay.fuzz.service.work.portable import NOT_SENT

LUCK = 0.01
"""Probability of a wrong answer that is due to a failure which did not show."""
MOST_RUNS = 1000
"""Of one case at one commit."""
LEAST_SHARE = 0.005
"""Share of failing runs below which a finding is told not to be worth a search."""


@dataclass
class Replay:
    """The finding of a job, to be replayed at commits."""

    run: Callable[[str, int], Outcome]
    """A commit, and how often to run the case at least."""
    between: Callable[..., list[str]]
    """The commits from one to another, the oldest first; from the first there is, if it is empty."""
    seen: dict[str, bool | None] = field(default_factory=dict)
    why: str = ""
    """Why the last commit that could not be told could not."""

    def fails(self, commit: str, times: int) -> bool | None:
        """Whether the finding shows at a commit; None: that cannot be told, as where the kernel does not load."""
        if commit not in self.seen:
            done = self.run(commit, times)
            told = {"fails": True, "fixed": False}.get(done.verdict) if done.state is JobState.DONE else None
            self.why = self.why if told is not None else done.reason or done.message
            self.seen[commit] = told
        return self.seen[commit]


def runs_needed(probability: float, steps: int) -> int:
    """Runs of a case at each commit, so that a search of so many steps errs with a probability of LUCK at most.

    Raises UsageError for a finding that shows too seldom.
    """
    if probability >= 1.0:
        return 1
    if probability < LEAST_SHARE:
        raise UsageError(f"the finding shows in {probability:.1%} of its runs, too seldom to be found by replays")
    return min(MOST_RUNS, math.ceil(math.log(LUCK / max(1, steps)) / math.log(1.0 - probability)))


def steps_of(commits: int) -> int:
    """Replays that a search among so many commits takes: its two ends, and a halving each."""
    return 2 + math.ceil(math.log2(max(2, commits)))


def bisected(request: JobRequest, replay: Replay) -> Outcome:
    """Find the commit that brought a finding, or fixed it if it does not show at the checkout. Raises UsageError."""
    assert request.finding is not None
    assert request.checkout is not None
    commits = replay.between(request.good or "", request.checkout.commit)
    times = runs_needed(request.finding.probability, steps_of(len(commits)))
    last = replay.fails(commits[-1], times)
    if last is None:
        raise UsageError(f"the case cannot be replayed at {commits[-1][:12]}: {replay.why}")
    first = replay.fails(commits[0], times) if len(commits) > 1 else None
    if first == last:
        what = "shows" if last else "does not show"
        raise UsageError(f"the finding {what} at {commits[0][:12]} and at {commits[-1][:12]}: name another start")
    if first is None and not last and request.good is None:
        raise UsageError(f"the finding shows neither at the first commit nor at {commits[-1][:12]}: name where it does")
    found, between = search(commits, lambda commit: _as_last(replay.fails(commit, times), last=last))
    verb = "brought" if last else "fixed"
    message = f"{verb} by {found[:12]}"
    if between:
        message += f", or by one of {len(between)} before it that cannot be replayed ({words_of(between)})"
    message += (
        f"; {len(replay.seen)} of {len(commits)} commits replayed, each {'once' if times == 1 else f'{times} times'}"
    )
    return Outcome(
        epoch=1,
        state=JobState.DONE,
        verdict="fails" if last else "fixed",
        commit=found,
        message=message,
        progress=Progress(cases=len(replay.seen), judged=len(replay.seen) * times),
    )


def _as_last(fails: bool | None, *, last: bool) -> bool | None:
    return None if fails is None else fails == last


def search(commits: Sequence[str], as_last: Callable[[str], bool | None]) -> tuple[str, list[str]]:
    """The first commit from which on all are as the last one, and those right before it that cannot be told.

    as_last: None for a commit that cannot be told, which is passed over. The first one is taken not to be as the last.
    """
    low, high = 0, len(commits) - 1
    unknown: set[int] = set()
    while untold := [i for i in range(low + 1, high) if i not in unknown]:
        middle = min(untold, key=lambda i: abs(2 * i - low - high))
        told = as_last(commits[middle])
        if told is None:
            unknown.add(middle)
        elif told:
            high = middle
        else:
            low = middle
    return commits[high], list(commits[low + 1 : high])


def verified(request: JobRequest, replay: Replay) -> Outcome:
    """Say whether a commit has fixed a finding: the stored case passes there, and failed before. Raises UsageError.

    Before: at `good`, if the job names it, else at the commit before, or the latest one further back that can be told.
    """
    assert request.finding is not None
    assert request.checkout is not None
    commit = request.checkout.commit
    times = runs_needed(request.finding.probability, 2) if request.finding.shows_again else 1
    fails = replay.fails(commit, times)
    if fails is None and replay.why.endswith(NOT_SENT):
        path = request.finding.subject.path.removeprefix(f"{SENT}/")
        return _said("declined", f"{path} is not there at {commit[:12]}: let findings of a kernel that is gone be", 1)
    if fails is None:
        raise UsageError(f"the case cannot be replayed at {commit[:12]}: {replay.why}")
    if fails:
        return _said("fails", f"the stored case fails at {commit[:12]}", times)
    history = replay.between("", commit)[:-1]
    asked = [request.good] if request.good else list(reversed(history[-BEFORE:]))
    for before in asked:
        told = replay.fails(before, times)
        if told:
            words = f"the stored case passes at {commit[:12]}, and fails at {before[:12]}"
            return _said("fixed", words, times).but(commit=history_name(commit, replay))
        if told is False and request.good:
            break
    where = request.good[:12] if request.good else f"the {len(asked)} commits before"
    return _said("passes", f"the stored case passes at {commit[:12]}, and was not seen to fail at {where}", times)


BEFORE = 16
"""Commits before one that is verified which are asked whether the case failed there."""


def history_name(commit: str, replay: Replay) -> str:
    """The whole name of a commit."""
    return replay.between("", commit)[-1]


def _said(verdict: str, message: str, times: int) -> Outcome:
    runs = f" ({times} runs at each commit)" if times > 1 else ""
    return Outcome(epoch=1, state=JobState.DONE, verdict=verdict, message=message + runs)
