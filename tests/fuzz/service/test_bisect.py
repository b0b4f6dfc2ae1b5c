import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.service.protocol import Checkout, JobKind, JobRequest, JobState, Outcome
from kernel_assay.fuzz.service.work import bisect
from kernel_assay.fuzz.service.work.bisect import Replay, bisected, runs_needed, search, steps_of, verified

COMMITS = [f"{n:07x}" for n in range(100)]


def request_of(finding, commit, kind=JobKind.BISECT, good=None):
    checkout = Checkout(repository="/repo", commit=commit)
    return JobRequest(kind=kind, checkout=checkout, finding=finding, good=good)


def replay_of(fails, commits=COMMITS):
    """`fails`: commit number -> True, False, or None where it does not load."""
    asked = []

    def run(commit, times):
        asked.append((int(commit, 16), times))
        told = fails(int(commit, 16))
        if told is None:
            return Outcome(epoch=1, state=JobState.FAILED, reason="it does not parse")
        return Outcome(epoch=1, state=JobState.DONE, verdict="fails" if told else "fixed")

    def between(first, last):
        return commits[commits.index(first) if first else 0 : commits.index(last) + 1]

    return Replay(run, between), asked


def test_finds_the_commit_that_brought_it(stored):
    replay, asked = replay_of(lambda n: n >= 37)
    outcome = bisected(request_of(stored, COMMITS[-1]), replay)
    assert (outcome.commit, outcome.verdict) == (COMMITS[37], "fails")
    assert len(asked) <= steps_of(100)


def test_finds_the_commit_that_fixed_it(stored):
    replay, _ = replay_of(lambda n: n < 60)
    outcome = bisected(request_of(stored, COMMITS[-1], good=COMMITS[10]), replay)
    assert (outcome.commit, outcome.verdict) == (COMMITS[60], "fixed")


def test_passes_over_commits_that_do_not_load(stored):
    replay, _ = replay_of(lambda n: None if 30 <= n < 37 else n >= 37)
    outcome = bisected(request_of(stored, COMMITS[-1]), replay)
    assert outcome.commit == COMMITS[37]
    assert "one of 7 before it that cannot be replayed" in outcome.message


@pytest.mark.parametrize("first", range(1, 12))
@pytest.mark.parametrize("hole", [(), (3, 4, 5), (1, 2, 9)])
def test_search_is_right_wherever_it_begins(first, hole):
    commits = COMMITS[:12]
    told = lambda c: None if int(c, 16) in hole else int(c, 16) >= first  # noqa: E731
    found, between = search(commits, told)
    assert first in {int(found, 16), *(int(c, 16) for c in between)}
    assert all(int(c, 16) in hole for c in between)


def test_says_why_nothing_can_be_found(stored):
    everywhere, _ = replay_of(lambda _: True)
    with pytest.raises(UsageError, match="shows at 0000000 and at"):
        bisected(request_of(stored, COMMITS[-1]), everywhere)
    broken, _ = replay_of(lambda _: None)
    with pytest.raises(UsageError, match="it does not parse"):
        bisected(request_of(stored, COMMITS[-1]), broken)


def test_a_flaky_one_is_run_as_often_as_its_probability_asks(stored):
    assert runs_needed(1.0, 9) == 1
    assert runs_needed(0.3, 9) == 20
    assert (1 - 0.3) ** 20 <= bisect.LUCK / 9 < (1 - 0.3) ** 19
    replay, asked = replay_of(lambda n: n >= 37)
    bisected(request_of(stored.but(probability=0.3), COMMITS[-1]), replay)
    assert {times for _, times in asked} == {20}
    with pytest.raises(UsageError, match="too seldom"):
        runs_needed(0.001, 9)


def test_fixed_needs_a_failure_before(stored):
    fixing = request_of(stored, COMMITS[50], JobKind.VERIFY)
    assert verified(fixing, replay_of(lambda n: n < 50)[0]).verdict == "fixed"
    assert verified(fixing, replay_of(lambda _: True)[0]).verdict == "fails"
    assert verified(fixing, replay_of(lambda _: False)[0]).verdict == "passes"
    loads_again = replay_of(lambda n: None if 45 <= n < 50 else n < 45)[0]
    assert "fails at 000002c" in verified(fixing, loads_again).message
    named = request_of(stored, COMMITS[50], JobKind.VERIFY, good=COMMITS[5])
    assert verified(named, replay_of(lambda n: n == 5)[0]).verdict == "fixed"
    with pytest.raises(UsageError, match="cannot be replayed"):
        verified(fixing, replay_of(lambda _: None)[0])
