"""A search over a cluster: the cases and findings of one process, whatever the nodes, and whichever of them is lost."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_parallel import summary

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.api import BatchJudged, RunSettings, run
from kernel_assay.fuzz.campaign import cluster

SETTINGS = RunSettings(ops=("silu",), planted=True, backends=("numpy",), cases=250, seed=3)


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

    def cluster_resources(self):
        return {"CPU": float(self.cpus)}

    def remote(self, kind):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda task: self._start(kind, task)))

    def _start(self, kind, task):
        actor = FakeActor(kind(task))
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
    def __init__(self, real):
        self.lost, self.real, self.threads = False, real, ThreadPoolExecutor(3)

    def __getattr__(self, name):
        def remote(*arguments):
            call = self.threads.submit(getattr(self.real, name), *arguments)
            call.actor = self
            return call

        return SimpleNamespace(remote=remote)


@pytest.fixture
def ray(monkeypatch):
    made = FakeRay()
    monkeypatch.setattr(cluster, "_joined", lambda _: made)
    return made


def told(folder, settings, listen=lambda _: None):
    with Store(folder) as store:
        result = run(settings, store=store, on_event=listen)
        result.verify()
        found = sorted((f.id, f.count) for f in store.findings())
        return summary(result.campaign), found, store.read_journal(result.campaign.run, "elites")


def test_a_cluster_finds_what_one_process_finds_and_a_lost_actor_costs_nothing(ray, tmp_path):
    def lose(event):
        if isinstance(event, BatchJudged) and event.cases >= 64 and len(ray.actors) == 2:
            ray.actors[0].lost = True

    alone = told(tmp_path / "one", SETTINGS)
    assert told(tmp_path / "many", replace(SETTINGS, ray="auto"), lose) == alone
    assert len(ray.actors) == 3  # one in the place of that which was lost
    assert ray.left
    assert all(actor.lost for actor in ray.actors)


def test_a_node_that_lacks_what_the_search_needs_says_so(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "source_digest", lambda *_: "another")
    with pytest.raises(UsageError, match=r"has no .*silu.*, or another one than here"):
        told(tmp_path, replace(SETTINGS, ray="auto"))
    assert ray.left


def test_a_batch_that_costs_every_actor_ends_the_search(ray, tmp_path, monkeypatch):
    def lose(*_):
        ray.actors[-1].lost = ray.actors[0].lost = True

    monkeypatch.setattr(cluster.ClusterSearch, "losses", 0)
    with pytest.raises(InternalError, match="died again"):
        told(tmp_path, replace(SETTINGS, ray="auto"), lose)


def test_what_is_no_cluster_leaves_no_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with Store(tmp_path) as store:
        with pytest.raises(UsageError, match=r"pip install 'kernel-assay\[ray\]'"):
            run(replace(SETTINGS, ray="auto"), store=store)
        assert store.runs() == []


def test_a_cluster_without_room_is_refused(ray, tmp_path):
    ray.cpus = 0
    with pytest.raises(UsageError, match="the Ray cluster auto has no CPU"):
        told(tmp_path, replace(SETTINGS, ray="auto"))


@pytest.mark.slow
def test_a_real_cluster_of_three_nodes(tmp_path):
    pytest.importorskip("ray")
    root = Path(__file__).parents[2]
    command = [sys.executable, root / "scripts" / "bench" / "ray_nodes", "--cases", "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same findings" in done.stdout.splitlines()[-1]
