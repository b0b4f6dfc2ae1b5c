"""No process is left behind, whoever dies; Ctrl-C is for the supervisor alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import subjects_of, user_subject

pytestmark = pytest.mark.usefixtures("own_zygotes")
ROOT = Path(__file__).resolve().parents[2]
CASE = Case(op="silu", tensors={"x": TensorRecipe(shape=(2, 2), dtype="float32")})
PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import subjects_of
from tests_case import CASE
peer = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
with Examiner([peer]) as examiner:
    examiner.check([CheckRequest(CASE, (peer.key,))])
    try:
        print("ready", flush=True)
        time.sleep(30)
    except KeyboardInterrupt:
        verdict = examiner.check([CheckRequest(CASE, (peer.key,))])[0].verdicts[peer.key]
        print(verdict.kind.value, examiner.sandbox.deaths, flush=True)
"""


def children(pid):
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def family(pid):
    return [p for child in children(pid) for p in (child, *family(child))]


def alive(pids):
    def state(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "gone"

    return [p for p in pids if state(p) not in {"gone", "Z", "X"}]


def gone_soon(pids, seconds=3.0):
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)


@pytest.fixture
def supervisor(tmp_path):
    made = f"CASE = Case.model_validate_json({CASE.model_dump_json()!r})\n"
    text = f"from kernel_assay.corpus.model.case import Case\n{made}"
    (tmp_path / "tests_case.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=env, cwd=tmp_path, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_ctrl_c_reaches_the_supervisor_and_no_worker(supervisor):
    os.killpg(supervisor.pid, signal.SIGINT)
    assert supervisor.stdout.readline() == "pass 0\n"
    assert supervisor.wait(10) == 0


def test_kill_minus_nine_of_the_supervisor_ends_all_its_processes(supervisor):
    pids = family(supervisor.pid)
    assert len(pids) >= 3, "the zygote, a worker and a spare"
    supervisor.kill()
    assert gone_soon(pids)


def test_close_ends_all_processes():
    before = set(family(os.getpid()))
    with Examiner([PEER]) as examiner:
        examiner.check([CheckRequest(CASE, (PEER.key,))])
        pids = set(family(os.getpid())) - before
        assert len(pids) >= 3
    assert gone_soon(pids)


def test_close_ends_all_processes_even_if_a_subject_hangs(tmp_path):
    path = tmp_path / "hangs.py"
    path.write_text('OP = "silu"\n\ndef run(out, x):\n    while True:\n        pass\n')
    hangs = user_subject(str(path), ())
    before = set(family(os.getpid()))
    with Examiner([hangs]) as examiner:
        examiner.launch([CheckRequest(CASE, (hangs.key,))])
        time.sleep(0.2)
        pids = set(family(os.getpid())) - before
    assert gone_soon(pids)


def test_what_a_subject_started_ends_with_the_sandbox(tmp_path):
    path = tmp_path / "starts.py"
    note = tmp_path / "pid"
    path.write_text(
        f'import subprocess\nOP = "silu"\n\ndef run(out, x):\n    out[...] = 0\n'
        f'    child = subprocess.Popen(["sleep", "30"])\n    open({str(note)!r}, "a").write(f"{{child.pid}}\\n")\n'
    )
    starts = user_subject(str(path), ())
    with Examiner([starts], closed=False) as examiner:  # so that it can say what it has started
        examiner.check([CheckRequest(CASE, (starts.key,))])
    pids = [int(line) for line in note.read_text().split()]
    try:
        assert pids
        assert gone_soon(pids, 1.0)
    finally:
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)
