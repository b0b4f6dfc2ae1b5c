"""Children forked by one process that has made their imports: each is as if it had been started anew."""

import os
import signal
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.process import forked_child
from kernel_assay.corpus.process.child import GoneError
from kernel_assay.corpus.process.forked_child import ForkedChild

SECONDS = 30.0
REFERENCE = """
import os, subprocess, sys

SLEEPER = subprocess.Popen(["sleep", "60"]).pid
TOLD = "|".join(map(str, [os.getppid(), SLEEPER, "wave" in sys.modules, os.environ.get("MINE"), os.getcwd()]))


def f(x: "float32[n]"):
    return x
"""


@pytest.fixture
def forked(tmp_path, monkeypatch):
    """A way to start a child, by a server of the test's own; it gives what the reference in it tells: see TOLD."""
    monkeypatch.setattr(forked_child, "_SERVERS", [])
    (tmp_path / "ref.py").write_text(REFERENCE)
    memory, made = os.memfd_create("test"), []

    def fork(imports=(), **environment):
        settings = {"place": "ref.py:f", "folder": str(tmp_path)}
        made.append(ForkedChild("oracles.references.process", memory, settings, imports, environment))
        return made[-1], made[-1].hear(SECONDS)["told"].split("|")

    yield fork
    for one in (*made, *forked_child._SERVERS):
        one.close()
    os.close(memory)


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_each_has_its_folder_and_variables_and_what_all_import(forked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "of the test")
    _, (server, _, imported, mine, folder) = forked()
    assert (imported, mine, folder) == ("False", "of the test", str(tmp_path))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    _, second = forked(["wave", "no_such_module"], MINE="of one child")
    assert (second[0], *second[2:]) == (server, "True", "of one child", str(tmp_path / "other"))
    assert os.environ["MINE"] == "of the test"


def test_whoever_closes_one_ends_what_it_has_started(forked):
    child, (_, sleeper, *_) = forked()
    beside, _ = forked()
    assert lives(child.pid)
    assert lives(sleeper)
    child.close()
    assert not lives(child.pid)
    deadline = time.monotonic() + SECONDS
    while lives(sleeper) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lives(sleeper)
    assert lives(beside.pid)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM])
def test_how_one_ended_is_told(forked, number):
    child, _ = forked()
    os.kill(child.pid, number)
    with pytest.raises(GoneError, match=rf"its process ended \({number.name}\)"):
        child.hear(SECONDS)


def test_another_process_takes_the_place_of_one_that_is_lost(forked):
    child, (server, *_) = forked()
    os.kill(int(server), signal.SIGKILL)
    with pytest.raises(GoneError):
        child.hear(SECONDS)
    _, (other, *_) = forked()
    assert other != server


def test_a_fork_of_this_process_asks_the_same(forked):
    _, (server, *_) = forked()
    if not (pid := os.fork()):
        _, (same, *_) = forked()
        os._exit(0 if same == server and forked_child.descriptors() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
