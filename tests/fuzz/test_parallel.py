"""Several processes search as one: the same cases, counts and elites for any number of them, and none outlives us."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from _silu import WRONG

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.parallel import ParallelSearch
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.elites import MOST_LEAD, seen_by
from kernel_assay.fuzz.generation.engines import BATCH
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.fuzz.triage.triage import investigate
from kernel_assay.kernels.boundary import devices as places
from kernel_assay.kernels.boundary.devices import Place, crew_of, places_of
from kernel_assay.kernels.catalog import subjects_of, user_subject

HOUSE = {s.key: s for op in ("silu", "softmax") for s in subjects_of(op)}
CLEAN = [HOUSE["silu/numpy_float32"], HOUSE["softmax/numpy_float32"]]
TAIL = HOUSE["silu/bug_tail"]
CPU = Place("cpu")
CASES = 20 * BATCH + 7


@pytest.fixture(scope="module")
def examiner():
    with Examiner([*CLEAN, TAIL], timeout=5.0) as made:
        yield made


def begin(store, examiner, engine="conjecture"):
    store.prepare()
    campaign = new_campaign("r1", 1, engine, list(examiner.subjects.values()))
    store.start_run(campaign)
    return campaign


def test_a_finding_that_was_stored_just_before_a_kill_is_still_new_when_the_run_goes_on(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(WRONG)
    with Store(tmp_path / "corpus") as store, Examiner([user_subject(str(file), ("silu",))], timeout=5.0) as examiner:
        campaign = begin(store, examiner)
        whole = Search(examiner, store, campaign, Limits(600.0, 3 * BATCH)).run()
        filed = {f.id: f.state for f in store.findings()}
        store.checkpoint(campaign)  # the record of before
        again = Search(examiner, store, campaign, Limits(600.0, 3 * BATCH)).run()
        assert {f.id: f.state for f in store.findings()} == filed
    assert whole.fresh == again.fresh == tuple(sorted(filed))
    assert set(filed.values()) == {State.MINIMIZED}


def told(folder, examiner, crew, *cuts):
    """What a run tells in one session, or in several that end after so many cases."""
    with Store(folder) as store:
        campaign = begin(store, examiner)
        for cases in (*cuts, CASES):
            if crew:
                with ParallelSearch(examiner, campaign, crew) as fleet:
                    campaign = Search(examiner, store, campaign, Limits(600.0, cases), fleet=fleet).run()
            else:
                campaign = Search(examiner, store, campaign, Limits(600.0, cases)).run()
        found = {(f.id, f.count) for f in store.findings()}
        return summary(campaign), found, store.read_journal("r1", "elites")


def summary(c):
    counted = {key: (s.rho, s.ulps, s.elements, s.classes, s.skipped) for key, s in c.statistics.items()}
    return c.cases, c.judged, c.next_index, c.kinds, c.by_subject, c.coverage, c.goals, c.max_rho, counted


@pytest.fixture(scope="module")
def alone(examiner, tmp_path_factory):
    return told(tmp_path_factory.mktemp("alone"), examiner, [])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_number_of_processes_is_the_same_search(examiner, alone, tmp_path, size):
    together = told(tmp_path, examiner, [CPU] * size)
    assert alone[0][0] == CASES
    assert alone[0][4][TAIL.key][Kind.MISMATCH.value] <= sum(count for _, count in alone[1])
    assert len(alone[2]) > 20, "nothing steers: the lead is not tested"
    assert together == alone


def test_what_one_began_several_go_on_with(examiner, alone, tmp_path):
    assert told(tmp_path, examiner, [CPU] * 2, 5 * BATCH + 3, 11 * BATCH)[0] == alone[0]


def test_the_lead_grows_with_the_search_and_never_shrinks():
    seen = [seen_by(batch) for batch in range(1000)]
    assert seen[:4] == [-2, -1, 0, 1]
    assert seen[-1] == 999 - MOST_LEAD
    assert all(b - a in {0, 1} for a, b in pairwise(seen))


@pytest.fixture
def devices(tmp_path, notes):
    """Simulated ones: which variables subjects have seen in a search by a crew."""
    file = tmp_path / "tells.py"
    file.write_text(
        "import os\nfrom pathlib import Path\n\nimport numpy as np\n\n\ndef silu(x):\n"
        f"    with Path({str(notes / 'seen')!r}).open('a') as f:\n"
        "        f.write(f\"{os.environ.get('CUDA_VISIBLE_DEVICES')} {os.environ.get('SHARED')}\\n\")\n"
        "    with np.errstate(all='ignore'):\n"
        "        return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)\n"
    )

    def seen(crew):
        subject = user_subject(f"{file}:silu", ("silu",))
        with Store(tmp_path / "corpus") as store, Examiner([subject]) as examiner:
            campaign = begin(store, examiner)
            with ParallelSearch(examiner, campaign, crew) as fleet:
                Search(examiner, store, campaign, Limits(600.0, 8 * BATCH), fleet=fleet).run()
        return (notes / "seen").read_text().splitlines()

    return seen


def test_every_process_has_its_own_device(devices):
    """A process sees the device that its place names."""
    seen = devices([Place("cpu", {"CUDA_VISIBLE_DEVICES": name}) for name in ("GPU-a", "GPU-b")])
    assert min(seen.count("GPU-a None"), seen.count("GPU-b None")) > 4


def test_processes_that_share_a_device_are_told_how_and_who_looks_into_failures_does_not(devices, monkeypatch):
    ended = []

    def shared(places, stack):
        stack.callback(ended.append, len(places))
        return [Place("cpu", p.environment, {"SHARED": "yes"}) for p in places]

    monkeypatch.setattr("kernel_assay.fuzz.campaign.parallel.side_by_side", shared)
    seen = devices([Place("cpu", {"CUDA_VISIBLE_DEVICES": "GPU-a"})] * 2)
    assert seen.count("GPU-a yes") > 8
    assert "None None" in seen, "the closest calls are run again at the end, by the one that leads"
    assert ended == [2]


def test_the_others_go_on_while_a_failure_is_looked_into(tmp_path, monkeypatch):
    file = tmp_path / "slow.py"
    file.write_text(
        "import time\nimport numpy as np\n\n\ndef silu(x):\n    time.sleep(0.2 * (x.shape == (3, 7)))\n"
        "    return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype) + (x.size > 40)\n"
    )
    slow = user_subject(f"{file}:silu", ("silu",))
    recipe = TensorRecipe(shape=(3, 7), dtype="float32", fill=Fill(distribution="normal", seed=1))
    request, gained = CheckRequest(Case(op="silu", tensors={"x": recipe}), (slow.key,)), []

    def look_into(examiner, failure, **settings):
        if not gained:
            before, until = fleet._admitted, time.monotonic() + 20.0
            while fleet._admitted < before + 4 and time.monotonic() < until:
                examiner.check([request])
            gained.append(fleet._admitted - before)
        return investigate(examiner, failure, **settings)

    monkeypatch.setattr("kernel_assay.fuzz.campaign.triage_queue.investigate", look_into)
    with Store(tmp_path / "corpus") as store, Examiner([slow]) as examiner:
        campaign = begin(store, examiner)
        with ParallelSearch(examiner, campaign, [CPU] * 2) as fleet:
            Search(examiner, store, campaign, Limits(600.0, 8 * BATCH, 0.0), fleet=fleet).run()
        assert examiner.sandbox.beside is None
    assert gained[0] >= 4


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_stands_still_is_replaced_and_its_work_done(
    examiner, alone, tmp_path, monkeypatch, number
):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.parallel.STOPPED_SECONDS", 0.2)
    with Store(tmp_path) as store:
        campaign = begin(store, examiner)
        with ParallelSearch(examiner, campaign, [CPU] * 2) as fleet:
            lost = fleet._members[0].process
            os.kill(lost.pid, number)
            done = Search(examiner, store, campaign, Limits(600.0, CASES), fleet=fleet).run()
            assert lost not in [m.process for m in fleet._members]
        assert (summary(done), store.read_journal("r1", "elites")) == (alone[0], alone[2])
    assert not lost.is_alive()


def test_a_batch_of_which_two_processes_die_stops_the_search_and_says_so(examiner, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.parallel.propose", lambda *_: os._exit(3))
    with Store(tmp_path) as store:
        campaign = begin(store, examiner)
        with ParallelSearch(examiner, campaign, [CPU] * 2) as fleet, pytest.raises(InternalError, match="died again"):
            Search(examiner, store, campaign, Limits(600.0, CASES), fleet=fleet).run()


def test_a_fault_of_ours_in_one_of_them_is_ours(examiner, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_assay.fuzz.campaign.parallel.propose", lambda *_: 1 / 0)
    with Store(tmp_path) as store:
        campaign = begin(store, examiner)
        with (
            ParallelSearch(examiner, campaign, [CPU] * 2) as fleet,
            pytest.raises(InternalError, match="ZeroDivisionError"),
        ):
            Search(examiner, store, campaign, Limits(600.0, CASES), fleet=fleet).run()


def test_an_engine_whose_cases_depend_on_one_another_is_refused(examiner, tmp_path):
    with Store(tmp_path) as store:
        campaign = begin(store, examiner, "given")
        with pytest.raises(UsageError, match="several processes need the engine 'conjecture'"):
            ParallelSearch(examiner, campaign, [CPU])


COMMAND = [sys.executable, "-m", "fuzz", "run", "silu", "--backend", "numpy", "--jobs", "2", "--seed", "1"]


def test_ctrl_c_ends_all_of_them_and_loses_nothing(tmp_path):
    words = [*COMMAND, "--budget", "60s", "--corpus", str(tmp_path)]
    started = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_hears_ctrl_c)  # noqa: PLW1509  one thread
    below = _when_searching(started.pid, tmp_path)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert started.returncode == 130, err
    assert b"findings: none" in out
    assert _gone(below)
    with Store(tmp_path) as store:
        campaign = store.latest_unfinished()
    assert campaign.cases == campaign.next_index > 0
    again = subprocess.run([*COMMAND[:4], "--resume", "--cases", str(campaign.cases + 64), "--corpus", str(tmp_path)])  # noqa: PLW1510
    assert again.returncode == 0


def test_killed_none_of_them_is_left(tmp_path):
    words = [*COMMAND, "--budget", "60s", "--corpus", str(tmp_path)]
    started = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    below = _when_searching(started.pid, tmp_path)
    assert len(below) > 4
    started.kill()
    started.communicate(timeout=30)
    assert _gone(below)


def test_a_device_is_named_as_it_is_counted(monkeypatch):
    monkeypatch.setattr(places, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    alone = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
    first, second = (Place("cuda", {"CUDA_VISIBLE_DEVICES": name, **alone}) for name in "01")
    assert places_of("cuda") == [first]
    assert places_of("cuda:1") == [second]
    assert places_of("cuda:all") == [first, second]
    assert crew_of("cuda:all", 5) == [first, second, first, second, first]
    assert len(crew_of("cuda:all")) % 2 == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-x,GPU-y")
    assert [p.environment["CUDA_VISIBLE_DEVICES"] for p in places_of("cuda:all")] == ["GPU-x", "GPU-y"]
    assert crew_of("cpu") == [CPU]
    assert crew_of("cpu", 3) == [CPU] * 3


@pytest.mark.parametrize(
    ("device", "jobs", "words"),
    [
        ("gpu", None, "'gpu' is not known"),
        ("cuda:x", None, "'cuda:x' is not known"),
        ("cuda:2", None, "there are only 2 CUDA devices"),
        ("cuda:all", 1, "--jobs 1 is not enough for 2 devices"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, device, jobs, words):
    monkeypatch.setattr(places, "device_count", lambda: 2)
    with pytest.raises(UsageError, match=words):
        crew_of(device, jobs)


def _hears_ctrl_c():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _when_searching(pid, corpus):
    """The processes below one that has begun to search."""
    deadline = time.monotonic() + 60
    while not list(Path(corpus).glob("local/runs/*/elites.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return _below(pid)


def _below(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, more = set(), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more}
        found |= more
    return found


def _gone(pids, seconds=10.0):
    deadline = time.monotonic() + seconds
    while (left := [p for p in pids if _runs(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
