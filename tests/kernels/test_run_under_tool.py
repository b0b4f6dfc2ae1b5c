"""A program under a tool: what it leaves is read, and when its time is up nothing of it lives on."""

import os
import sys
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.fuzz.triage.sanitize import order_of
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.kernels.nvidia.run_under_tool import end_session, watch

CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 3), dtype="float32")})


@pytest.fixture
def order():
    return order_of(CASE, next(s for s in subjects_of("silu") if s.backend == "numpy"))


def tool(folder, body):
    """A program of Python that is given the command line to watch."""
    path = folder / "tool.py"
    path.write_text(body)
    return [sys.executable, str(path)]


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_what_it_printed_and_logged_is_read_and_the_folder_is_gone(tmp_path, order):
    body = """import os, subprocess, sys
open("log", "w").write(os.environ["WORD"])
print(os.getcwd(), file=sys.stderr)
sys.exit(3 + subprocess.run(sys.argv[1:]).returncode)
"""
    seen = watch(tool(tmp_path, body), order, seconds=60.0, env={"WORD": "heard"})
    assert (seen.code, seen.log) == (3, "heard")
    assert seen.out.strip() == '{"status": "ok", "message": ""}'
    assert not Path(seen.err.strip()).exists()


def test_a_program_without_a_log_has_an_empty_one(tmp_path, order):
    seen = watch(tool(tmp_path, "print('x' * 100_000 + 'end')"), order, seconds=60.0, env={})
    assert (seen.code, seen.err, seen.log) == (0, "", "")
    assert seen.out.endswith("xend\n")
    assert len(seen.out) <= 1 << 16


def test_one_that_hangs_is_ended_with_all_it_has_started(tmp_path, order):
    pids = tmp_path / "pids"
    body = f"""import os, subprocess, sys, time
open("log", "w").write("so far")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""
    begin = time.monotonic()
    seen = watch(tool(tmp_path, body), order, seconds=3.0, env={})
    assert (seen.code, seen.log) == (None, "so far")
    assert time.monotonic() - begin < 30
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert [pid for pid in started if alive(pid)] == []


def test_what_a_program_leaves_behind_does_not_outlive_it(tmp_path, order):
    pids = tmp_path / "pids"
    body = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
open({str(pids)!r}, "w").write(str(child.pid))
"""
    assert watch(tool(tmp_path, body), order, seconds=60.0, env={}).code == 0
    assert not alive(int(pids.read_text()))


def test_other_sessions_are_left_alone():
    child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
    end_session(child)  # it leads none
    assert alive(child)
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_others_are_seen_to_meanwhile(tmp_path, order):
    calls = []
    body = "import time; time.sleep(0.5)"
    watch(tool(tmp_path, body), order, seconds=60.0, env={}, beside=lambda: calls.append(1))
    assert len(calls) >= 3
