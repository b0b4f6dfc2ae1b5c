"""Workers that a server starts along, as tasks of a Ray cluster: what is started, what is said of losses, the end."""

import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from kernel_assay.client import Client
from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.service import serve
from kernel_assay.fuzz.service.client import AwayError
from kernel_assay.fuzz.service.protocol import JobKind, Waiting
from kernel_assay.fuzz.service.settings import ServiceSettings
from kernel_assay.fuzz.service.work import ray_engine, worker
from kernel_assay.fuzz.service.work.ray_engine import RayEngine, work
from kernel_assay.fuzz.service.work.worker import Order, Worker, WorkerSettings

ORDER = Order("http://127.0.0.1:1", "kassay_x", WorkerSettings(name="ray", kinds=(JobKind.JUDGE,)))


class LostError(Exception):
    """What Ray raises of a task that is no more."""


class TaskError(LostError):
    cause = None


class Cluster:
    """A cluster whose tasks end when the test says so."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=TaskError)

    def __init__(self, **resources):
        self.resources, self.tasks, self.ended, self.cancelled, self.left = resources, [], {}, [], False

    def cluster_resources(self):
        return self.resources

    def remote(self, function):
        assert function is work
        return SimpleNamespace(options=lambda **needs: SimpleNamespace(remote=lambda order: self._start(needs, order)))

    def _start(self, needs, order):
        self.tasks.append((needs, order))
        return len(self.tasks) - 1

    def wait(self, tasks, num_returns, timeout):
        assert num_returns == len(tasks)
        return [one for one in tasks if one in self.ended], [one for one in tasks if one not in self.ended]

    def get(self, task):
        if isinstance(said := self.ended[task], Exception):
            raise said
        return said

    def cancel(self, task):
        self.cancelled.append(task)

    def shutdown(self):
        self.left = True


class Queue:
    """A server, by what waits there at each question."""

    def __init__(self, *answers):
        self.answers, self.engine = list(answers), None

    def __call__(self, server, token):
        assert (server, token) == (ORDER.server, ORDER.token)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def waiting(self, kinds, wait=0.0):
        assert kinds == (JobKind.JUDGE,)
        if not self.answers:
            self.engine.end()
            return Waiting()
        answer = self.answers[0] if wait else self.answers.pop(0)  # asked twice, the second time without waiting
        if isinstance(answer, Exception):
            self.answers.pop(0)
            raise answer
        if callable(answer):
            self.answers.pop(0)
            answer()
            return Waiting()
        return answer


@pytest.fixture
def run(monkeypatch):
    """Run an engine on a cluster while these answers last; what it said."""
    monkeypatch.setattr(ray_engine, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(ray_engine, "pauses", lambda: iter([0.0] * 99))

    def run(cluster, *answers, most=0):
        said, queue = [], Queue(*answers)
        monkeypatch.setattr(ray_engine, "joined", lambda _: cluster)
        monkeypatch.setattr(ray_engine, "Client", queue)
        queue.engine = RayEngine("auto", ORDER, most, said.append)
        queue.engine.ending.wait = lambda *_: None  # no pauses
        queue.engine.run()
        return said

    return run


def test_tasks_are_started_for_what_waits_as_far_as_the_cluster_has_room(run):
    cluster = Cluster(CPU=3.0, GPU=1.0)
    run(cluster, Waiting(cpu=2), Waiting(cpu=5, cuda=4), Waiting(cpu=5, cuda=4))
    needs = Counter((n["num_cpus"], n["num_gpus"], order.settings.gpu_only) for n, order in cluster.tasks)
    assert needs == {(1, 0, False): 3, (1, 1, True): 1}
    assert [order.settings.name for _, order in cluster.tasks] == ["ray-0", "ray-1", "ray-2", "ray-3"]
    assert all(n["max_retries"] == 0 and order.settings.idle_seconds < 60 for n, order in cluster.tasks)
    assert cluster.cancelled == [0, 1, 2, 3]
    assert cluster.left


def test_no_more_tasks_than_asked_for(run):
    cluster = Cluster(CPU=8.0)
    run(cluster, Waiting(cpu=5, cuda=2), most=2)
    assert [n["num_gpus"] for n, _ in cluster.tasks] == [0, 0, 1, 1]


def test_a_task_that_ends_makes_room_and_a_lost_one_is_told_of(run):
    cluster = Cluster(CPU=1.0)

    def ends(said):
        return lambda: cluster.ended.update({len(cluster.tasks) - 1: said})

    said = run(
        cluster,
        Waiting(cpu=1),
        ends(""),
        Waiting(cpu=1),
        ends(LostError()),
        AwayError("the server is away"),
        Waiting(cpu=1),
        ends(TaskError("no module\nnamed kernel_assay")),
        Waiting(cpu=1),
        ends("node n2: the server cannot be reached"),
        Waiting(cpu=1),
    )
    assert [order.settings.name for _, order in cluster.tasks] == ["ray-0"] * 5
    assert said[1:] == [
        "ray-0: its node or process is lost (LostError); what it had is queued again within a minute",
        "the server is away",
        "ray-0: the node cannot work: no module named kernel_assay",
        "node n2: the server cannot be reached",
    ]


def test_a_node_of_another_version_or_out_of_reach_says_so(monkeypatch):
    monkeypatch.setattr(ray_engine.platform, "node", lambda: "n2")
    monkeypatch.setattr(ray_engine, "forget_variables", lambda: None)
    assert work(replace(ORDER, version="0.0")).startswith("node n2 has version ")
    monkeypatch.setattr(worker, "pauses", lambda: iter([0.0] * 99))
    monkeypatch.setattr(worker, "Slot", Mock())
    alone = replace(ORDER, settings=replace(ORDER.settings, idle_seconds=0.0))
    assert work(alone).startswith("node n2: the server http://127.0.0.1:1 cannot be reached: ")


def working(monkeypatch, lease, idle_seconds):
    monkeypatch.setattr(worker, "Slot", Mock())
    client = Mock(spec=Client)
    client.lease = lease
    return Worker(client, WorkerSettings(name="w", idle_seconds=idle_seconds), Mock(allow_local=False))


def test_a_worker_ends_when_nothing_waits_for_long(monkeypatch):
    asked = []
    made = working(monkeypatch, asked.append, 0.2)
    made.run()
    assert asked
    assert not made.ending.is_set()


def test_ctrl_c_waits_until_all_is_handed_back(monkeypatch):
    begun, handed_back = threading.Event(), []

    def lease(_):
        begun.set()
        made.ending.wait(10)
        time.sleep(0.6)
        handed_back.append(1)

    made = working(monkeypatch, lease, 60.0)

    def interrupt():
        begun.wait(10)
        time.sleep(0.3)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        made.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert handed_back == [1]


def test_what_cannot_be_is_one_sentence(tmp_path, monkeypatch, capsys):
    with pytest.raises(UsageError, match="--engine ray needs --url"):
        ServiceSettings(database="sqlite://", host="0.0.0.0", insecure=True, engine=("ray", "--ray", "auto"))
    monkeypatch.chdir(tmp_path)
    assert main(["work", "--token", "kassay_x", "--ray", "auto", "--device", "cuda"]) == 2
    assert "leave --device out" in capsys.readouterr().err
    monkeypatch.setattr("kernel_assay.kernels.environment.gpus", list)
    assert main(["work", "--token", "kassay_x", "--device", "cuda"]) == 2
    assert capsys.readouterr().err == "kassay: --device cuda: nvidia-smi lists no GPU here\n"


def engine(monkeypatch, program, refuse=lambda: None):
    """The worker that a server starts along, which is this program, and what the server's log says of it."""
    said = []
    monkeypatch.setattr(serve, "command_of", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(serve, "ENGINE_SECONDS", 0.1)
    monkeypatch.setattr(serve.LOG, "warning", lambda words, *given: said.append(words % given))
    return serve.Engine(ServiceSettings(database="sqlite://", engine=("local",)), "kassay_s", refuse), said


def test_an_engine_that_cannot_begin_ends_the_server_with_its_sentence(monkeypatch):
    refused = threading.Event()
    made, said = engine(
        monkeypatch, "import sys; print('kassay: no cluster', file=sys.stderr); sys.exit(2)", refused.set
    )
    made.start()
    assert refused.wait(20)
    assert made.refused == "the worker that --engine starts: no cluster"
    assert not said


def test_an_engine_that_dies_is_started_anew_and_ends_when_it_is_told(monkeypatch, tmp_path):
    begun = tmp_path / "begun"
    program = f"""import os, sys, time
open({str(begun)!r}, "a").write(os.environ["KASSAY_TOKEN"] + "\\n")
print("local: 1 at a time, for here", file=sys.stderr, flush=True)
if open({str(begun)!r}).read().count("\\n") < 2:
    os.kill(os.getpid(), 9)
time.sleep(60)"""
    made, said = engine(monkeypatch, program)
    made.start()
    until = time.monotonic() + 20
    while len(said) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    made.ending.set()
    made.join(20)
    assert not made.is_alive()
    at_work = "engine: local: 1 at a time, for here"
    assert said == [at_work, "engine: it has ended, and is started anew: exit code -9", at_work]
    assert begun.read_text() == "kassay_s\n" * 2
