"""A campaign: what is found is stored, small and counted; interrupted and resumed, it is the same campaign."""

import shutil
from functools import cache

import pytest

from kernel_assay.corpus.model.campaign import RunOptions
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.campaign.triage_queue import TriageQueue
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.events import BatchJudged
from kernel_assay.fuzz.generation.engines import BATCH
from kernel_assay.fuzz.planning.plan import new_campaign, targets
from kernel_assay.kernels.catalog import subjects_of, user_subject

HOUSE = {s.key: s for op in ("silu", "gemm") for s in subjects_of(op)}
TAIL, CLEAN = HOUSE["silu/bug_tail"], HOUSE["silu/numpy_float32"]


@pytest.fixture(scope="module")
def examiner():
    with Examiner([CLEAN, TAIL], timeout=5.0) as made:
        yield made


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "corpus") as made:
        made.prepare()
        yield made


def begin(store, examiner, run="r1", seed=1, engine="conjecture"):
    campaign = new_campaign(run, seed, engine, list(examiner.subjects.values()), RunOptions(timeout=5.0, memory_mb=512))
    store.start_run(campaign)
    return campaign


def search(store, examiner, campaign, cases, **fields):
    return Search(examiner, store, campaign, Limits(600.0, cases), **fields)


def one(store, examiner, cases=320, **settings):
    looking = search(store, examiner, begin(store, examiner, **settings), cases)
    return looking, looking.run()


@pytest.fixture(scope="module")
def made(examiner, tmp_path_factory):
    """A corpus with one run, that search, and what it told."""
    with Store(tmp_path_factory.mktemp("made") / "corpus") as made:
        made.prepare()
        yield (made, *one(made, examiner))


@pytest.fixture
def copied(made, tmp_path):
    """The same as a corpus of one's own, and what the run told."""
    shutil.copytree(made[0].root, tmp_path / "copied")
    with Store(tmp_path / "copied") as copy:
        yield copy, made[2]


@pytest.fixture(scope="module")
def single(examiner, tmp_path_factory):
    """What an engine tells of so many cases in one session; each is run once."""

    @cache
    def told(cases, engine="conjecture"):
        with Store(tmp_path_factory.mktemp("single") / "corpus") as whole:
            return search(whole, examiner, begin(whole, examiner, engine=engine), cases).run()

    return told


def totals(c):
    return c.cases, c.judged, c.kinds, c.by_subject, set(c.coverage), c.next_index, c.max_rho


def test_a_planted_bug_is_found_minimized_and_stored(made):
    store, looking, done = made
    assert (done.cases, done.judged, done.next_index, done.finished) == (320, 640, 320, True)
    assert sum(done.kinds.values()) == done.judged
    assert done.by_subject[CLEAN.key] == {"pass": 320}
    assert set(done.by_subject[TAIL.key]) == {"pass", "mismatch"}
    found = store.findings()
    assert {f.id for f in found} == set(done.findings) == set(looking.queue.findings)
    assert found
    assert all(f.subject.key == TAIL.key and f.verdict.kind is Kind.MISMATCH for f in found)
    assert any(f.state is State.MINIMIZED and f.case.elements == 1 for f in found)
    assert all(f.case.elements <= f.original.elements for f in found)
    assert all(f.found_by.startswith("r1:") and f.input_digest and f.probability == 1.0 for f in found)
    assert store.load_run("r1").model_dump() == done.model_dump()


def test_every_failing_execution_is_counted_once(store, examiner, monkeypatch):
    """What is met while a failure is shrunk is left out: it is no execution of the search."""
    monkeypatch.setattr(TriageQueue, "_on_other", lambda *_: lambda *_: None)
    _, done = one(store, examiner)
    assert sum(f.count for f in store.findings()) == done.by_subject[TAIL.key]["mismatch"]


def test_the_next_run_knows_what_was_found_and_shrinks_nothing(copied, examiner, monkeypatch):
    store, first = copied
    counts = {f.id: f.count for f in store.findings()}
    monkeypatch.setattr(
        "kernel_assay.fuzz.campaign.triage_queue.investigate",
        lambda *a, **k: pytest.fail("a known failure was investigated"),
    )
    _, second = one(store, examiner, run="r2")
    assert totals(second)[:4] == totals(first)[:4]
    again = {f.id: f for f in store.findings()}
    assert set(again) == set(counts)
    failing = second.by_subject[TAIL.key]["mismatch"]
    assert second.known_hits == failing
    assert all(f.count >= counts[i] for i, f in again.items())
    assert sum(f.count for f in again.values()) > sum(counts.values())
    assert set(second.findings) <= set(again)


def test_a_known_regression_that_is_only_committed_is_known_too(copied, examiner):
    store, _ = copied
    for finding in store.findings():
        store.promote(finding)
    for path in store._finding_paths():
        path.unlink()
    _, second = one(store, examiner, run="r2", cases=64)
    assert second.finished
    assert second.known_hits


@pytest.mark.parametrize("engine", ["conjecture", "given"])
@pytest.mark.parametrize("cut", [96, 100])
def test_two_sessions_are_one(store, examiner, single, cut, engine):
    first = search(store, examiner, begin(store, examiner, engine=engine), cut).run()
    assert first.cases == cut
    second = search(store, examiner, store.load_run("r1"), 256).run()
    assert totals(second) == totals(single(256, engine))
    assert (second.cases, second.next_index) == (256, 256)


@pytest.mark.parametrize("after", [40, 130])
def test_an_interrupted_search_goes_on_as_if_nothing_had_been(store, examiner, single, after):
    def stop(event):
        looking.stop_requested |= isinstance(event, BatchJudged) and event.cases >= after

    looking = search(store, examiner, begin(store, examiner), 512, on_event=stop)
    first = looking.run()
    assert not first.finished
    assert after <= first.cases < 512
    assert first.next_index == first.cases
    assert store.latest_unfinished().run == "r1"
    second = search(store, examiner, store.latest_unfinished(), 512).run()
    assert second.finished
    assert totals(second) == totals(single(512))
    assert {k: v >= 0 for k, v in second.goals.items()} == {k: v >= 0 for k, v in single(512).goals.items()}
    assert store.latest_unfinished() is None
    assert second.seconds > first.seconds


def test_what_an_interrupted_search_found_is_minimized_when_it_goes_on(store, examiner):
    def stop(_):
        looking.stop_requested = True

    looking = search(store, examiner, begin(store, examiner), 128, on_event=stop)
    first = looking.run()
    assert first.findings
    resumed = search(store, examiner, store.latest_unfinished(), 128)
    resumed.run()
    assert any(f.state is State.MINIMIZED and f.case.elements == 1 for f in store.findings())


def test_a_stop_at_the_first_word_loses_nothing(store, examiner):
    looking = search(store, examiner, begin(store, examiner), 512)
    looking.stop_requested = True
    done = looking.run()
    assert (done.cases, done.finished) == (BATCH, False)
    assert done.findings == tuple(sorted(f.id for f in store.findings()))


def test_time_limits_end_a_search(store, examiner):
    campaign = begin(store, examiner)
    done = Search(examiner, store, campaign, Limits(0.5)).run()
    assert done.finished
    assert 0.5 <= done.seconds < 8.0
    assert done.cases % BATCH == 0


def test_goals_name_the_case_that_reached_them(made):
    _, _, done = made
    assert done.goals["side_by_side"] >= 0
    assert done.goals["empty_tensor"] >= 0
    assert all(-1 <= index < done.cases for index in done.goals.values())


def test_coverage_counts_every_output(made):
    _, _, done = made
    assert sum(done.coverage.values()) == done.judged
    cells = [cell.split("|") for cell in done.coverage]
    assert {len(c) for c in cells} == {6}
    assert {c[0] for c in cells} == {"silu"}
    assert {c[1] for c in cells} == {"float32", "float16", "bfloat16", "float64"}
    assert {c[5] for c in cells} == {"bug_tail", "numpy_float32"}


def test_steering_tells_the_largest_error_of_each_subject(made):
    store, _, done = made
    assert 0.0 < done.max_rho[CLEAN.key] <= 1.0
    assert store.read_journal("r1", "elites")


def test_signatures_met_before_shrinking_are_aliases_of_the_finding(made):
    store, _, _ = made
    keys = [k for f in store.findings() for k in {f.signature.key, *f.aliases}]
    for finding in store.findings():
        assert finding.aliases
        assert all(alias.startswith("silu-bug_tail-mismatch") for alias in finding.aliases)
    assert len(store.findings()) <= 3 * len({f.verdict.rule for f in store.findings()})
    assert len(keys) >= len(store.findings())


def test_other_failures_met_on_the_way_are_findings_of_their_own(store, tmp_path):
    path = tmp_path / "double.py"
    path.write_text(
        'import numpy as np\nOP = "silu"\n\ndef run(out, x):\n    if x.shape[0] > 100:\n'
        '        raise RuntimeError("too many rows")\n    if x.shape[1] > 3:\n        out[...] = 1\n        return\n'
        "    w = x.astype(np.float64)\n    with np.errstate(all='ignore'):\n"
        "        out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)\n"
    )
    with Examiner([user_subject(str(path), ())]) as examiner:
        one(store, examiner, cases=256)
    found = {f.verdict.kind: f for f in sorted(store.findings(), key=lambda f: -f.case.elements)}  # the smallest wins
    assert {Kind.RAISED, Kind.MISMATCH} <= set(found)
    assert found[Kind.RAISED].case.tensors["x"].shape in {(101, 0), (101, 1)}
    assert found[Kind.MISMATCH].case.tensors["x"].shape == (1, 4)


def test_targets_know_the_dtypes_and_sizes_of_their_subjects():
    narrow = HOUSE["gemm/bug_tf32"]
    only = targets(new_campaign("r", 1, "conjecture", [narrow]), 99)[0]
    assert (only.dtypes, only.max_elements) == (("float32",), 99)
    both = targets(new_campaign("r", 1, "conjecture", [narrow, HOUSE["gemm/bug_k_tail"]]))[0]
    assert both.dtypes == ("bfloat16", "float16", "float32", "float64")
    free = HOUSE["silu/bug_tail"]
    assert free.dtypes == (), "it takes all"
    assert targets(new_campaign("r", 1, "conjecture", [free]))[0].dtypes == both.dtypes
    assert 32 in both.hints
