"""Seeded bugs are found with their verdicts in a short campaign, and nothing else is.

Of those in CUDA C++, each of which is compiled three times, two of each kind, and of those in Triton, which is
interpreted, the first of each kind in an op; scripts/bench/planted and scripts/bench/planted_cuda look for all of them.
"""

from functools import cache
from pathlib import Path

import pytest

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.events import BatchJudged
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.fuzz.triage.triage import as_met
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import load_contracts

CASES = {"gemm": 1000, "embedding": 700, "rmsnorm": 900, "rope": 600}
"""Cases an op is searched at most; 500 if it does not stand here."""
ROUNDS = (30, 120)
"""Likewise before that, so that one that is hard to find is not searched beside all that were found long ago."""
LEAST = 150
"""Cases that clean subjects get."""
FAULTS = sorted((Path(__file__).parents[1] / "faults").glob("*.py"))


def campaign(tmp_path, subjects, cases, monkeypatch, **settings):
    """A run that looks into no finding: what is measured is finding. It ends when all that was planted is found."""
    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.investigate", lambda _, failure, **__: as_met(failure))
    wanted = {s.key: s.planted for s in subjects if s.planted}

    def look(event):
        if wanted and isinstance(event, BatchJudged):
            search.stop_requested |= all(kind in event.by_subject.get(key, {}) for key, kind in wanted.items())

    with Store(tmp_path / "corpus") as store, Examiner(subjects, **settings) as examiner:
        store.prepare()
        record = new_campaign("r1", 4, "conjecture", subjects)
        store.start_run(record)
        search = Search(examiner, store, record, Limits(600.0, cases), on_event=look)
        return search.run()


def clean_of(op):
    found = [s for s in subjects_of(op) if s.backend == "numpy" and not s.planted]
    assert found
    return found


PER_KIND = 2


@cache
def compiled():
    """Keys of those in CUDA C++ that are looked for: two of each kind, of attention only what no other op has."""
    found = {}
    for op in sorted(load_contracts(), key=lambda op: (op == "attention", op)):
        for planted, one in {s.planted: s.key for s in subjects_of(op) if s.planted and s.backend == "cuda"}.items():
            found.setdefault(planted, []).append(one)
    return {key for keys in found.values() for key in keys[:PER_KIND]}


def planted_in(op):
    """All in numpy and torch, of each kind one in Triton, and those that are compiled."""
    found = {s.planted if s.backend == "triton" else s.name: s for s in reversed(subjects_of(op)) if s.planted}
    return [s for s in found.values() if s.backend != "cuda" or s.key in compiled()]


def failures(done, key):
    return {k: n for k, n in done.by_subject.get(key, {}).items() if Kind(k).facts.fails}


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_planted_bugs_of_an_op_are_found(tmp_path, monkeypatch, op):
    left = planted_in(op)
    clean = clean_of(op)[0]
    assert left
    for cases in (*ROUNDS, CASES.get(op, 500)):
        done = campaign(tmp_path / str(cases), [clean, *left], cases, monkeypatch, timeout=10.0)
        assert failures(done, clean.key) == {}
        left = [s for s in left if s.planted not in done.by_subject[s.key]]
        if not left:
            return
    assert {s.name: failures(done, s.key) for s in left} == {}


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_clean_subjects_of_an_op_are_clean(tmp_path, monkeypatch, op):
    clean = clean_of(op)
    done = campaign(tmp_path, clean, LEAST, monkeypatch, timeout=10.0)
    assert done.cases >= LEAST
    assert {s.key: failures(done, s.key) for s in clean} == {s.key: {} for s in clean}


def test_planted_faults_of_all_kinds_are_found_in_one_run(tmp_path, monkeypatch):
    subjects = [user_subject(str(p), ()) for p in FAULTS if not p.stem.startswith(("hangs", "floods"))]
    clean = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
    done = campaign(tmp_path, [clean, *subjects], 32, monkeypatch, timeout=2.0, memory_mb=128)
    assert failures(done, clean.key) == {}
    for subject in subjects:
        assert subject.planted in done.by_subject[subject.key], subject.name
