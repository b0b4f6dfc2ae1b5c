"""A server and a worker, as processes: what is submitted is judged, cancelled, handed back; and what it may reach."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from kernel_assay.client import Checkout, Client, JobKind, JobRequest, JobState, Settings, Sources, Target
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.service.protocol import OVER, Lease
from kernel_assay.fuzz.service.work.worker import Task, Worker, WorkerSettings

KERNEL = "import numpy as np\nOP = 'silu'\nDTYPES = ('float32',)\ndef run(out, x):\n    out[...] = 77\n"
SPY = """import os, pathlib, socket
OP = "silu"
DTYPES = ("float32",)
def run(out, x):
    seen = [str(pathlib.Path(p).read_bytes()) for p in ({token!r}, {secret!r}) if pathlib.Path(p).exists()]
    seen += [f"{{k}}={{v}}" for k, v in os.environ.items() if "kassay_" in v or "SECRET" in k]
    try:
        socket.create_connection(("127.0.0.1", {port}), 1)
        seen.append("network")
    except OSError:
        pass
    raise RuntimeError(f"seen {{seen}}")
"""
REFERENCE = """import os, pathlib, socket
def reference(x):
    seen = [str(pathlib.Path(p).read_bytes()) for p in ({token!r}, {secret!r}) if pathlib.Path(p).exists()]
    try:
        socket.create_connection(("127.0.0.1", {port}), 1)
        seen.append("network")
    except OSError:
        pass
    try:
        pathlib.Path({token!r} + ".written").write_text("x")
        seen.append("written")
    except OSError:
        pass
    raise RuntimeError(f"seen {{seen}}")
"""
PROBLEM = 'reference: reference\nsolution: solution\ninputs:\n  x: "float32[n]"\n'
SECONDS = 90.0
HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


class Kassay:
    def __init__(self, folder):
        self.folder, self.token = folder, folder / "token"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = self.start("serve", "--port", str(self.port), "--quiet")
        self.says("serve", "sign in")
        said = (folder / "serve.log").read_text().split()
        self.token.write_text(next(word for word in said if word.startswith("kassay_")))
        self.client = Client(self.address, self.token.read_text())
        self.worker = None

    def start(self, *words):
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            command = [sys.executable, "-m", "kernel_assay.fuzz", *words]
            environment = {**HERE, "A_SECRET": "1", "KASSAY_TOKEN": "kassay_of_the_environment"}
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment)

    def work(self, *words):
        self.worker = self.start(
            "work", "--server", self.address, "--token-file", str(self.token), "--name", "w", *words
        )

    def says(self, log, words):
        until = time.monotonic() + SECONDS
        while words not in (self.folder / f"{log}.log").read_text():
            assert time.monotonic() < until, (self.folder / f"{log}.log").read_text()
            time.sleep(0.1)

    def run(self, *words):
        said = io.StringIO()
        there = {"KASSAY_SERVER": self.address, "KASSAY_TOKEN": self.token.read_text()}
        with chdir(self.folder), patch.dict(os.environ, there), redirect_stdout(said), redirect_stderr(said):
            return main(words), said.getvalue()

    def until(self, name, *states):
        until = time.monotonic() + SECONDS
        while (job := self.client.job(name)).state not in states:
            assert time.monotonic() < until, job
            time.sleep(0.1)
        return job

    def close(self):
        self.client.close()
        for process in (self.worker, self.server):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def test_a_task_that_nobody_has_thought_of_fails_and_ends_no_worker(caplog):
    request = JobRequest(kind=JobKind.JUDGE, checkout=Checkout(repository="/r", commit="a" * 7))
    lease = Lease(task="ab-0", epoch=1, until=datetime.now(UTC), job="ab", request=request)
    slot, checkouts = Mock(), Mock()
    checkouts.files.side_effect = RuntimeError("strange")
    outcome = Task(Worker(Mock(), WorkerSettings(name="w"), checkouts), slot, lease).outcome()
    assert (outcome.state, outcome.reason) == ("failed", "the worker made a mistake; its own output says which")
    assert "RuntimeError: strange" in caplog.text
    slot.renew.assert_called_once()


@pytest.fixture(scope="module")
def kassay(tmp_path_factory):
    made = Kassay(tmp_path_factory.mktemp("service"))
    made.work()
    yield made
    made.close()


def long_search(kassay):
    job = kassay.client.submit(
        JobRequest(
            kind=JobKind.FUZZ,
            target=Target(ops=("silu",), subjects=("numpy_float32",)),
            settings=Settings(seconds=300.0),
        )
    )
    return kassay.until(job.id, JobState.RUNNING)


@pytest.mark.slow
def test_from_a_wrong_kernel_to_its_replay_here(kassay):
    (kassay.folder / "mine.py").write_text(KERNEL)
    code, said = kassay.run("remote", "judge", "mine.py", "--op", "silu", "--cases", "16")
    assert code == 1, said
    assert "wrong: judge" in said
    finding = said.split("kassay pull ")[1].split()[0]
    (shrink,) = kassay.client.jobs(kind="shrink").items
    assert kassay.until(shrink.id, *OVER).verdict == "fails"
    code, said = kassay.run("pull", finding, "--corpus", "here")
    assert code == 0, said
    code, said = kassay.run("replay", finding, "--corpus", "here")
    assert (code, "1 fails" in said) == (1, True), said
    code, said = kassay.run("remote", "show", finding)
    assert "smallest  silu float32 x=1" in said
    code, said = kassay.run("remote", "show", "0000000000000000")
    assert (code, said.count("\n")) == (2, 1)


@pytest.mark.slow
def test_what_was_sent_reaches_neither_token_nor_network(kassay):
    (secret := kassay.folder / "anything").write_text("kassay_secret")
    secret.chmod(0o600)
    words = {"token": str(kassay.token), "port": kassay.port, "secret": str(secret)}
    target = Target(ops=("silu",), subjects=("spy.py",))
    spy = kassay.client.judge(
        JobRequest(kind=JobKind.JUDGE, target=target, sources=Sources(files={"spy.py": SPY.format(**words)})), 60
    )
    assert "seen []" in spy.message, spy
    files = {
        "problem.yaml": PROBLEM,
        "reference.py": REFERENCE.format(**words),
        "solution.py": "def solution(x):\n    return x\n",
    }
    reference = kassay.client.judge(
        JobRequest(kind=JobKind.JUDGE, target=Target(folder="."), sources=Sources(files=files)), 60
    )
    said = reference.reason + reference.message
    assert "seen" in said, reference
    assert "kassay_" not in said
    assert "network" not in said
    assert "written" not in said


@pytest.mark.slow
def test_cancel_is_obeyed_and_sigterm_hands_back_and_a_lost_executor_is_replaced(kassay):
    job = long_search(kassay)
    asked = time.monotonic()
    kassay.client.cancel(job.id)
    quick = JobRequest(
        kind=JobKind.JUDGE,
        target=Target(ops=("silu",), subjects=("mine.py",)),
        sources=Sources(files={"mine.py": KERNEL + "# again\n"}),
        settings=Settings(cases=8),
    )
    assert kassay.client.judge(quick, 60).verdict == "wrong"
    assert time.monotonic() - asked < 30
    job = long_search(kassay)
    children = subprocess.run(
        ["pgrep", "-P", str(kassay.worker.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    time.sleep(1)
    assert kassay.client.job(job.id).state is JobState.RUNNING
    kassay.worker.send_signal(signal.SIGTERM)
    assert kassay.worker.wait(30) == 0
    job = kassay.client.job(job.id)
    assert (job.state, job.attempts) == (JobState.QUEUED, 0)
    kassay.client.cancel(job.id)


@pytest.mark.slow
def test_a_worker_says_in_a_sentence_what_it_lacks(kassay):
    words = ("work", "--server", kassay.address)
    code, said = kassay.run(*words, "--token-file", "missing")
    assert (code, said.count("\n")) == (2, 1), said
    kassay.start(*words, "--token", "kassay_wrong").wait(SECONDS)
    assert "kassay: this token is not known" in (kassay.folder / "work.log").read_text()
    code, said = kassay.run("remote", "--help")
    assert code == 0
    code, said = kassay.run("remote", "list", "--server", "http://127.0.0.1:9")
    assert (code, "cannot be reached" in said, said.count("\n")) == (2, True, 1), said
