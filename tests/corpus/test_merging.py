"""Two findings become one, whoever comes first; the history says each change once; what people decided stays."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import case, finding

from kernel_assay.corpus.model.case import Fill, Special
from kernel_assay.corpus.model.findings import Element, Event, Exhibit, Sanitized, State, Variant
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.corpus.storage.merging import merge

SMALL = (Special(value="nan", place="last"),)
CASES = [case(1, 1), case(1, 1, specials=SMALL), case(2, 3), case(3, 2), case(9, 9)]


def event(state, at="2026-01-01", what=""):
    return Event(at=at, state=state, what=what)


def lived(*states, **fields):
    """A finding that has been through these states, a day each."""
    events = tuple(event(s, f"2026-01-0{i + 1}", f"{s} {i}") for i, s in enumerate(states))
    return finding(state=states[-1], history=events, **fields)


FINDINGS = st.builds(
    lambda smallest, state, count, alias, seen: lived(
        state, smallest=smallest, count=count, aliases=(alias,), first_seen=seen, last_seen=seen
    ),
    st.sampled_from(CASES),
    st.sampled_from([s for s in State if s is not State.FIXED]),
    st.integers(0, 5),
    st.sampled_from("abc"),
    st.sampled_from(["2026-01", "2026-02", "2026-03"]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(FINDINGS, min_size=2, max_size=4))
def test_what_counts_does_not_depend_on_the_order(found):
    results = set()
    for order in permutations(found):
        merged = order[0]
        for other in order[1:]:
            merged = merge(merged, other)
        results.add((merged.case.id, merged.count, merged.aliases, merged.first_seen, merged.last_seen))
    assert len(results) == 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(FINDINGS, min_size=2, max_size=5))
def test_the_history_tells_the_state_and_each_change_once(found):
    merged = found[0]
    for other in found[1:]:
        before, merged = merged, merge(merged, other)
        added = merged.history[len(before.history) :]
        assert merged.history[: len(before.history)] == before.history
        changed = merged.state is not before.state or merged.case.id != before.case.id
        assert len(added) == changed
    assert merged.history[-1].state is merged.state
    assert all(a.canonical() != b.canonical() for a, b in pairwise(merged.history))


def test_meeting_the_same_thing_again_adds_no_event():
    found = lived(State.NEW, State.CONFIRMED, State.MINIMIZED)
    merged = merge(found, found.but(count=7))
    assert (merged.history, merged.count) == (found.history, 8)


def test_a_smaller_case_is_an_event_that_says_how_much_smaller():
    merged = merge(lived(State.MINIMIZED, smallest=case(9, 9)), lived(State.MINIMIZED, smallest=case(2, 2)))
    assert [e.what for e in merged.history] == ["minimized 0", "smaller: 81 -> 4 elements"]


@pytest.mark.parametrize("pokes", [(), ((0, 1),)])
@pytest.mark.parametrize("specials", [(), SMALL])
def test_of_two_of_one_size_the_one_with_fewer_exceptions_wins(specials, pokes):
    exceptional = case(2, 2, specials=SMALL, pokes=((0, 1), (1, 2), (2, 3)))
    wordy = Fill(distribution="normal", seed=123456789, scale=1.2345678e-30)
    plainer = case(2, 2, specials=specials, pokes=pokes, fill=wordy)
    for one, other in permutations([exceptional, plainer]):
        assert merge(lived(State.MINIMIZED, smallest=one), lived(State.MINIMIZED, smallest=other)).case.id == plainer.id


def test_what_was_seen_goes_with_the_case():
    shown = Exhibit(output="out", failing=1, elements=(Element(index=(0,), got=1.0, wanted=2.0),))
    also = (Variant(subject="softmax/other", dtype="float32", kind=Kind.PASS),)
    stored = finding(case(9, 9), contract="a.py")
    met = finding(case(1, 1), exhibit=shown, variants=also, contract="b.py", probability=0.5)
    merged = merge(stored, met)
    assert merged.exhibit.canonical() == shown.canonical()
    assert [v.canonical() for v in merged.variants] == [also[0].canonical()]
    assert (merged.probability, merged.contract) == (0.5, "b.py")
    assert merge(met, stored).exhibit.canonical() == shown.canonical()


def test_what_a_sanitizer_said_is_kept_of_the_case_that_is_kept():
    def told(shape, **said):
        return finding(case(*shape), sanitized=tuple(Sanitized(tool=tool, errors=n) for tool, n in said.items()))

    def heard(merged):
        return {one.tool: one.errors for one in merged.sanitized}

    once, again, larger = told((1, 1), memcheck=1, racecheck=2), told((1, 1), memcheck=3), told((9, 9), initcheck=4)
    assert heard(merge(once, again)) == {"memcheck": 3, "racecheck": 2}
    assert heard(merge(again, once)) == {"memcheck": 1, "racecheck": 2}
    assert heard(merge(larger, once)) == heard(merge(once, larger)) == {"memcheck": 1, "racecheck": 2}


def test_a_whole_life_in_the_store(tmp_path):
    """As the commands save it: each time what is new, and the last event of it."""
    steps = [
        (State.NEW, "found"),
        (State.CONFIRMED, "5 of 5 runs failed"),
        (State.MINIMIZED, "9 -> 1 elements"),
        (State.OPEN, "met again by run r2"),
        (State.OPEN, "met again by run r3"),
        (State.FIXED, "a replay passed"),
        (State.FIXED, "a replay passed"),
        (State.REGRESSION, "a replay failed again"),
        (State.OPEN, "met again by run r4"),
        (State.FIXED, "a replay passed"),
        (State.MINIMIZED, "shrunk"),
    ]
    with Store(tmp_path / "corpus") as store:
        for day, (state, what) in enumerate(steps, 1):
            met = finding(state=state, count=1, history=(event(state, f"2026-01-{day:02}", what),))
            store.save_finding(met)
        (found,) = store.findings()
    told = [(e.state.value, e.what) for e in found.history]
    assert told == [
        ("new", "found"),
        ("confirmed", "5 of 5 runs failed"),
        ("minimized", "9 -> 1 elements"),
        ("open", "met again by run r2"),
        ("fixed", "a replay passed"),
        ("regression", "a replay failed again"),
        ("fixed", "a replay passed"),
        ("regression", "shrunk"),
    ]
    assert found.count == len(steps)
    assert [e.at for e in found.history] == sorted(e.at for e in found.history)


def test_findings_without_a_history_merge(tmp_path):
    """Records of the first schema had none."""
    merged = merge(finding(state=State.MINIMIZED), finding(state=State.OPEN, last_seen="2026-02"))
    assert [(e.state, e.at) for e in merged.history] == [(State.OPEN, "2026-02")]


def test_what_is_expected_to_fail_keeps_its_case():
    stored = finding(smallest=case(9, 9), expect="fail", reason="known", expires="2030-01-01")
    merged = merge(stored, finding(smallest=case(1, 1)))
    assert merged.case == stored.case
    assert (merged.expect, merged.reason, merged.expires) == ("fail", "known", "2030-01-01")
