"""Processes that share a GPU: the service comes and goes with us, and nobody is accused of what others do to a client.

The service is simulated by a program of its name, its clients by workers on the CPU.
"""

import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Status
from kernel_assay.fuzz.checking.check import interface_of
from kernel_assay.kernels.boundary.devices import PIPES, Place
from kernel_assay.kernels.boundary.protocol import Task
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.sandbox import mps, worker_pool
from kernel_assay.kernels.sandbox.mps import Service, Sharing, side_by_side, terminate
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.oracles.catalog import contract_of

GPUS = [Place("cuda", {"CUDA_VISIBLE_DEVICES": name}) for name in ("0", "1")]
PROGRAM = """#!/bin/sh
pipes="$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = -f ]; then
  echo "$CUDA_VISIBLE_DEVICES" > "$pipes/gpu"
  echo $$ > "$pipes/control"
  exec sleep 1000
fi
[ -e "$pipes/control" ] || exit 1
read -r line
echo "$line" >> "$TOLD"
case "$line" in
  get_server_list) echo 77 ;;
  quit*) kill "$(cat "$pipes/control")" ;;
esac
"""
AWAY = 0.4
SHARED = {"FAKE_SERVICE": "1"}
RIGHT = """
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A service that notes what it is told."""

    def install(text=PROGRAM):
        path = tmp_path / "bin" / mps.CONTROL
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return tmp_path / "told"

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    return install


def test_a_service_comes_goes_and_terminates_clients(program):
    told = program()
    service = Service(GPUS[1])
    pipes = Path(service.environment[PIPES])
    assert service.environment["CUDA_VISIBLE_DEVICES"] == "0", "its only one, whichever that is"
    assert (pipes / "gpu").read_text().strip() == "1"
    terminate(service.environment, 4711)
    pid = int((pipes / "control").read_text())
    service.close()
    assert told.read_text().splitlines()[-2:] == ["terminate_client 77 4711", "quit -t 1"]
    assert not Path(f"/proc/{pid}").exists()
    assert not pipes.exists()


def test_one_service_for_each_gpu_that_several_use(program):
    program()
    with ExitStack() as stack:
        first, second, third, lone, cpu = side_by_side([*GPUS, GPUS[0], Place("cuda", {"X": "2"}), Place("cpu")], stack)
        assert first.shared
        assert first.shared == third.shared
        assert not second.shared
        assert (lone, cpu) == (Place("cuda", {"X": "2"}), Place("cpu"))
        assert Path(first.shared[PIPES]).exists()
    assert not Path(first.shared[PIPES]).exists()


@pytest.mark.parametrize("why", ["it does not start", "there is none"])
def test_they_take_turns_where_there_is_no_service(program, monkeypatch, why):
    if why == "there is none":
        monkeypatch.setattr(mps, "CONTROL", "no-such-program")
    else:
        program("#!/bin/sh\nexit 1\n" if why == "it does not start" else PROGRAM)
    with ExitStack() as stack:
        assert side_by_side([GPUS[0]] * 2, stack) == [GPUS[0]] * 2


def test_each_loss_keeps_a_sandbox_away_for_longer(monkeypatch):
    now = 100.0
    monkeypatch.setattr(mps.time, "monotonic", lambda: now)
    assert not Sharing({}).wanted
    sharing = Sharing(SHARED)
    for seconds in (2.0, 8.0, 32.0, 128.0, 512.0, 600.0, 600.0):
        assert sharing.wanted
        sharing.lose()
        now += seconds - 0.1
        assert not sharing.wanted
        now += 0.1
    assert sharing.wanted


# ---- clients ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def box_of(tmp_path, monkeypatch):
    """A sandbox of one subject whose workers are clients; `terminated` has the pids of those that were killed."""
    terminated = []
    monkeypatch.setattr(mps, "AWAY_SECONDS", AWAY)
    monkeypatch.setattr(worker_pool, "terminate", lambda environment, pid: terminated.append((dict(environment), pid)))
    with ExitStack() as stack:

        def make(body, timeout=5.0):
            path = tmp_path / "it.py"
            head = 'import os\nimport time\nimport numpy as np\nOP = "silu"\n'
            path.write_text(f"{head}\ndef run(out, x):\n    client = 'FAKE_SERVICE' in os.environ\n{body}{RIGHT}")
            subject = user_subject(str(path), ())
            faces = {"silu": interface_of(contract_of("silu"))}
            box = stack.enter_context(Sandbox([subject], faces, timeout=timeout, place=Place("cpu", {}, SHARED)))
            assert not box.probe()
            box.terminated = terminated
            return box, subject.key

        yield make


def ran(box, key, *sizes):
    cases = []
    for size in sizes:
        fill = Fill(distribution="normal", seed=1)
        cases.append(Case(op="silu", tensors={"x": TensorRecipe(shape=(size, 2), dtype="float32", fill=fill)}))
    tasks = [Task(c, contract_of("silu").output_specs(c), (key,)) for c in cases]
    return [outcome[key].execution for outcome in box.run(tasks)]


def test_the_active_worker_is_a_client_and_the_spare_is_not(box_of):
    box, key = box_of("    assert client\n")
    assert [e.status for e in ran(box, key, 3, 4)] == [Status.OK] * 2
    assert box._active.shared == SHARED
    assert not box._spare.shared


def test_who_dies_only_as_a_client_is_not_accused_and_comes_back_later(box_of):
    box, key = box_of("    if client and x.shape[0] == 5:\n        os.abort()\n")
    assert [e.status for e in ran(box, key, 3, 5, 4)] == [Status.OK] * 3
    assert box.deaths == 1
    assert not box._active.shared, "it was tried again by one that is no client, who goes on"
    assert box._spare.warm
    mps.time.sleep(AWAY)
    assert ran(box, key, 3)[0].status is Status.OK
    assert box._active.shared
    assert not box._active.warm, "what touches a GPU before it is a client never becomes one"


def test_who_dies_by_itself_is_accused(box_of):
    box, key = box_of("    if x.shape[0] == 5:\n        os.abort()\n")
    assert [e.status for e in ran(box, key, 3, 5, 4)] == [Status.OK, Status.CRASHED, Status.OK]


def test_who_waits_only_as_a_client_is_not_accused(box_of):
    box, key = box_of("    while client and x.shape[0] == 5:\n        time.sleep(1)\n", timeout=0.7)
    active = box._active
    assert [e.status for e in ran(box, key, 3, 5, 4)] == [Status.OK] * 3
    assert box.terminated == [(SHARED, active.pid)], "killed without this, it would take the others with it"


def test_who_never_comes_back_is_accused_after_a_second_try(box_of):
    box, key = box_of("    while x.shape[0] == 5:\n        time.sleep(1)\n", timeout=0.7)
    slow = ran(box, key, 3, 5, 4)
    assert [e.status for e in slow] == [Status.OK, Status.TIMEOUT, Status.OK]
    assert slow[1].message == "no result within 0.7 s, nor within the 1.4 s more that first calls and builds may take"
    assert box.deaths == 2
