"""The check of a GPU machine, without a GPU: its steps run, and its table tells what came of each."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_nightly import module_of

from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.boundary.devices import Place

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "gpu_check"
MARK = "GPU_CHECK_TEST"


def command(folder, *words):
    return [sys.executable, str(CHECK), "--device", "cpu", "--quick", "--out", str(folder / "out"), *words]


def check(folder, *words):
    return subprocess.run(command(folder, *words), cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def script(monkeypatch):
    return module_of(CHECK, monkeypatch)


@pytest.mark.skipif(bool(missing()), reason="no compiler")
def test_each_step_is_a_row_and_what_needs_a_gpu_is_skipped(tmp_path):
    done = check(tmp_path, "--seconds", "1", "doctor", "suite", "clean", "device_judge")
    rows = re.split(r"^  (?! )", done.stdout.rpartition("\n\n")[2], flags=re.MULTILINE)[2:]
    table = [row.split() for row in rows]
    assert [row[0] for row in table] == ["doctor", "suite", "clean", "device_judge"]
    states = [" ".join(row[1:5]) if row[1] == "as" else row[1] for row in table]
    fine = "as it must be"
    assert states == [fine, "skipped", fine, "skipped"]
    assert "0 findings" in " ".join(table[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert {p.stem for p in (tmp_path / "out").iterdir()} == {"doctor", "clean"}


@pytest.mark.skipif(bool(device_count()), reason="there is a GPU")
def test_without_a_gpu_it_is_one_sentence(tmp_path):
    done = subprocess.run([sys.executable, str(CHECK)], cwd=tmp_path, capture_output=True, text=True, check=False)
    sentence = "gpu_check: device 'cuda' is not available here, because there is no CUDA device\n"
    assert (done.returncode, done.stderr, done.stdout) == (2, sentence, "")


@pytest.mark.parametrize("words", [["docter"], ["--jobs", "0"], ["--seconds", "-1"], ["--device", "gpu"], ["--quik"]])
def test_a_wrong_request_is_one_sentence(tmp_path, words):
    done = check(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_what_is_not_as_it_must_be_is_marked(script, tmp_path, capsys):
    class Some:
        def steps(self):
            yield script.Step("good", ("-c", "print('good: all is well')"))
            yield script.Step("none", skipped="it needs a GPU")
            yield script.Step("bad", ("-c", "print('not found: x'); print('bad: 1 missed'); raise SystemExit(1)"))
            yield script.Step("empty", ("-c", "print('nothing is measured: no GPU')"))
            yield script.Step("dies", ("-c", "import os; os.abort()"))

    rows = script.check(Some(), script.Steps(), tmp_path)
    assert [(r.name, r.state, r.code, r.said) for r in rows] == [
        ("good", "as it must be", "0", "all is well"),
        ("none", "skipped", "-", "it needs a GPU"),
        ("bad", "WRONG", "1", "1 missed"),
        ("empty", "skipped", "0", "nothing is measured: no GPU"),
        ("dies", "WRONG", "-6", ""),
    ]
    assert "  not found: x" in capsys.readouterr().out.splitlines()


def test_a_machine_on_which_nothing_runs_is_wrong(script, monkeypatch):
    told = script.Told("doctor", "as it must be", "0", "1.0", "")
    args = script.parser().parse_args(["--device", "cpu"])
    plan = script.Plan(args, Place("cpu"))
    plan.backends = ["cuda"]
    assert script.examined(told, plan).state == "as it must be"
    assert script.examined(told, plan).said == "the CPU: cuda (not cupy, torch, triton)"
    plan.backends = []
    assert script.examined(told, plan).state == "WRONG"


@pytest.mark.parametrize("quick", [[], ["--quick"]])
def test_on_a_gpu_the_steps_are_commands_with_options_that_they_have(script, monkeypatch, quick):
    monkeypatch.setattr(script, "runs_on", lambda kind: list(script.BACKENDS))
    monkeypatch.chdir(ROOT)
    plan = script.Plan(script.parser().parse_args(["--device", "cuda:all", "--jobs", "8", *quick]), Place("cuda"))
    steps = {step.name: step for step in plan.steps()}
    left_out = {name for name, step in steps.items() if step.skipped}
    assert left_out == ({"suite", "matvec"} if quick else set())
    for name in set(script.NAMES) - left_out - {"doctor", "suite"}:
        path, *words = steps[name].words
        text = (ROOT / path).read_text() + (ROOT / "scripts/bench/_bench.py").read_text()
        assert [w for w in words if w.startswith("--") and f'"{w}"' not in text] == []
    assert "cuda:all" in steps["planted"].words
    assert "cuda:all" in steps["clean"].words
    assert "--budget" not in steps["planted"].words, "on a GPU all of them are looked for"


def left(mark):
    """Processes that carry a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def gone(mark):
    """Whether nobody carries a mark any more, a moment later."""
    until = time.monotonic() + 5.0
    while left(mark) and time.monotonic() < until:
        time.sleep(0.1)
    return not left(mark)


@pytest.mark.skipif(bool(missing()), reason="no compiler")
def test_ctrl_c_ends_the_step_and_the_table_tells_of_it(tmp_path):
    mark = f"{MARK}={tmp_path}"
    env = {**os.environ, MARK: str(tmp_path)}
    words = command(tmp_path, "doctor", "planted", "large")
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60.0
        said = tmp_path / "out" / "planted.txt"
        while not (said.exists() and ": 0." in said.read_text()) and time.monotonic() < until:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    rows = [line.split()[:2] for line in out.splitlines()[-2:]]
    assert rows == [["doctor", "as"], ["planted", "stopped"]]
    assert process.returncode == 130
    assert gone(mark)


def test_a_step_that_does_not_end_is_ended_with_all_it_started(script, tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.setattr(script._run, "GRACE", 0.5)
    sleeps = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    words = ("-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{sleeps}']); {sleeps}")
    told = script.carried_out(script.Step("hangs", words, limit=1.0), script.Steps(), tmp_path)
    monkeypatch.delenv(MARK)
    assert (told.state, told.code) == ("too long", "124")
    assert gone(f"{MARK}={tmp_path}"), "a process that was killed is not gone at once, but soon"
