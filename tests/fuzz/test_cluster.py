"""A search over a cluster: the cases and findings of one process, whatever the nodes, and whichever of them is lost."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from _silu import WRONG
from test_parallel import CLEAN, TAIL, begin, summary

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.api import RunSettings, run
from kernel_assay.fuzz.campaign import cluster
from kernel_assay.fuzz.campaign.clock import Clock
from kernel_assay.fuzz.campaign.cluster import ClusterSearch
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.generation.engines import BATCH

SETTINGS = RunSettings(ops=("silu",), subjects=("mine.py",), peers=("none",), cases=130, seed=3)
CLUSTER = replace(SETTINGS, ray="auto")
CASES = 6 * BATCH + 7


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a kernel that is wrong."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(WRONG)


class LostError(Exception):
    """What Ray raises of an actor that is no more."""


class TaskError(Exception):
    """What Ray raises of an actor's method that has raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """A cluster in threads of this process, whose actors can be lost."""

    exceptions = SimpleNamespace(RayError=(LostError, TaskError), RayTaskError=TaskError)

    def __init__(self, cpus=2):
        self.cpus, self.actors, self.left = cpus, [], False
        self.fatal = 0
        """Which batch costs the first actor."""

    def cluster_resources(self):
        return {"CPU": float(self.cpus)}

    def remote(self, kind):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda task: self._start(kind, task)))

    def _start(self, kind, task):
        actor = FakeActor(kind(task), 0 if self.actors else self.fatal)
        self.actors.append(actor)
        return actor

    def wait(self, calls, timeout):
        done, _ = wait(calls, timeout, "FIRST_COMPLETED")
        lost = [call for call in calls if call.actor.lost]
        return [*done, *lost], []

    def get(self, call):
        if call.actor.lost:
            raise LostError
        try:
            return call.result()
        except Exception as error:
            raise TaskError(error) from error

    def kill(self, actor):
        actor.lost = True

    def shutdown(self):
        self.left = True


class FakeActor:
    def __init__(self, real, fatal):
        self.lost, self.real, self.threads, self.left = False, real, ThreadPoolExecutor(3), fatal

    def __getattr__(self, name):
        def remote(*arguments):
            call = self.threads.submit(getattr(self.real, name), *arguments)
            call.actor = self
            self.left -= name == "work"
            self.lost |= self.left == 0 and name == "work"
            return call

        return SimpleNamespace(remote=remote)


@pytest.fixture
def ray(monkeypatch):
    made = FakeRay()
    monkeypatch.setattr(cluster, "joined", lambda _: made)
    return made


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"])
def test_a_cluster_where_nobody_listens_is_refused_at_once(address, monkeypatch):
    monkeypatch.setattr(cluster, "import_module", lambda _: SimpleNamespace())
    with pytest.raises(UsageError, match=r"^the Ray cluster '.*:\d+' cannot be reached \(.+\); name auto, local, HOST"):
        cluster.joined(address)


@pytest.fixture(scope="module")
def examiner():
    with Examiner([*CLEAN, TAIL], timeout=5.0) as made:
        yield made


def told(folder, examiner, settings):
    """What a search tells, on a cluster or in one process."""
    with Store(folder) as store:
        campaign, clock = begin(store, examiner), Clock(600.0)
        fleet = ClusterSearch("auto", campaign, 5.0, None, clock) if settings.ray else None
        with fleet or nullcontext():
            search = Search(examiner, store, campaign, Limits(600.0, CASES), fleet=fleet, began=clock)
            campaign = search.run()
        found = {(f.id, f.count) for f in store.findings()}
        return summary(campaign), found, store.read_journal("r1", "elites")


def test_a_cluster_finds_what_one_process_finds_and_a_lost_actor_costs_nothing(ray, examiner, tmp_path):
    ray.fatal = 2
    assert told(tmp_path / "many", examiner, CLUSTER) == told(tmp_path / "one", examiner, SETTINGS)
    assert len(ray.actors) in {2, 3}  # one in the place of that which was lost, unless all was done by then
    assert ray.left
    assert all(actor.lost for actor in ray.actors)


def finish(folder):
    with Store(folder) as store:
        run(CLUSTER, store=store).verify()


def test_a_node_that_lacks_what_the_search_needs_says_so(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "source_digest", lambda *_: "another")
    with pytest.raises(UsageError, match=r"has no .*mine.py, or another one than here"):
        finish(tmp_path)
    assert ray.left


def test_a_batch_that_costs_every_actor_ends_the_search(ray, tmp_path, monkeypatch):
    ray.fatal = 1
    monkeypatch.setattr(cluster.ClusterSearch, "losses", 0)
    with pytest.raises(InternalError, match="died again"):
        finish(tmp_path)


def test_what_is_no_cluster_leaves_no_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with Store(tmp_path) as store:
        with pytest.raises(UsageError, match=r"pip install 'kernel-assay\[ray\]'"):
            run(CLUSTER, store=store)
        assert store.runs() == []


def test_a_cluster_without_room_is_refused(ray, tmp_path):
    ray.cpus = 0
    with pytest.raises(UsageError, match="the Ray cluster auto has no CPU"):
        finish(tmp_path)


@pytest.mark.slow
def test_a_real_cluster_of_three_nodes(tmp_path):
    pytest.importorskip("ray")
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "scripts" / "bench" / "ray_nodes", "--cases", "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same findings" in done.stdout.splitlines()[-1]
