"""What was covered, in memory and in a journal of which any tail may have been written by a process that was killed."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from kernel_assay.corpus.model.base import SCHEMAS
from kernel_assay.corpus.model.coverage_counts import Coverage
from kernel_assay.corpus.storage.migrate import upgrade

SETS = st.sampled_from([("a",), ("a", "b"), ("b", "c"), ("c",), ()])
CASES = st.lists(st.tuples(st.sampled_from("xyz"), SETS), max_size=40)


def counted(cases):
    return Counter(f"{cell}|{subject}" for cell, subjects in cases for subject in subjects)


def covered(cases):
    made = Coverage()
    for cell, subjects in cases:
        made.count(cell, subjects)
    return made


@given(CASES, CASES)
def test_counts_are_those_of_every_subject_by_itself(first, second):
    whole = covered(first)
    whole.add(covered(second))
    assert whole.flat() == counted([*first, *second])
    assert whole.size == len(whole.flat())
    assert Coverage.of(whole.flat()).flat() == whole.flat()


@example([("x", ("a",))] * 2, [(1, 1, False), (1, 1, True), (1, 0, False)])
@given(CASES, st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3), st.booleans()), max_size=8))
def test_a_journal_says_the_same_wherever_processes_were_killed(cases, sessions):
    """Each session goes on at the record, writes so many lines, and dies with some of them behind its last record."""
    lines, recorded = [], 0
    for step, behind, whole in sessions:
        made, at, wrote = Coverage.read(lines, recorded), recorded, []
        while at < len(cases):
            end = min(len(cases), at + step)
            for cell, subjects in cases[at:end]:
                made.count(cell, subjects)
            first = whole and not wrote
            lines.append(made.line(0 if first else at, end, whole=first))
            wrote.append(end)
            at = end
        recorded = wrote[-1 - behind] if behind < len(wrote) else recorded
        assert Coverage.read(lines, recorded).flat() == counted(cases[:recorded])


def test_cases_that_were_declined_are_not_counted_as_judged_in_old_records():
    old = {"schema_version": 2, "judged": 40, "kinds": {"pass": 29, "unsupported": 10, "mismatch": 1}}
    new = upgrade({**old, "timeline": [{"seconds": 1.0, "judged": 20, "cells": 3, "findings": 0}]}, "campaign")
    assert (new["schema_version"], new["judged"], new["timeline"][0]["judged"]) == (SCHEMAS["campaign"], 30, 15)
    assert upgrade({**old, "kinds": {"pass": 40}}, "campaign")["judged"] == 40
    assert upgrade({**old, "kinds": "none"}, "campaign")["judged"] == 40, "it is for validation to refuse"
