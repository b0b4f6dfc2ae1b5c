"""`record`: a program runs as it is, and a file of its calls is left, whatever ends it."""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.workload import read_calls
from kernel_assay.kernels.recording import hook
from kernel_assay.kernels.recording.recorder import record

ROOT = Path(__file__).resolve().parents[2]
SERVE = """\
    import os, signal, sys, threading
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x, eps=1e-6):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight

    def elsewhere():
        torch.tanh(torch.ones(7))

    norm = Norm(32)
    for rows in (1, 2, 2):
        norm(torch.ones(rows, 32), eps=1e-5)
    F.softmax(torch.ones(3, 5).t(), dim=-1)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    child = os.fork()
    if not child:
        torch.cat([torch.ones(2), torch.ones(4)])
        os._exit(0)
    os.waitpid(child, 0)
    print(sys.argv[1:], "torch._dynamo" in sys.modules, flush=True)
    if "killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3)
"""


@pytest.fixture
def recorded(tmp_path):
    """Records a program in a process of its own: it is started, and sees signals, as on a command line."""

    def run(text, *arguments, options=(), python=sys.executable):
        (tmp_path / "serve.py").write_text(textwrap.dedent(text))
        command = [sys.executable, "-m", "kernel_assay.fuzz", "record", "-o", "calls.jsonl", *options, "--"]
        command += [python, "serve.py", *arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        path = tmp_path / "calls.jsonl"
        return done, read_calls(path) if path.exists() else []

    return run


@pytest.mark.parametrize("end", ["exits", "killed"])
def test_operators_are_recorded_whatever_ends_the_program(recorded, end):
    done, calls = recorded(SERVE, "--rows", end)
    assert done.returncode == (137 if end == "killed" else 3), done.stderr
    assert done.stdout == f"['--rows', '{end}'] False\n", "no compiler was imported for it"
    assert f"{len(calls)} distinct calls" in done.stderr
    found = {(one.call, *one.inputs.values()): one for one in calls}
    assert found["aten.pow", "float32[2, 32]"].count == 2
    assert found["aten.pow", "float32[2, 32]"].attrs == {"exponent": 2}
    assert found["aten._softmax", "float32[5, 3]"].strides == {"self": (1, 5)}
    assert ("aten.tanh", "float32[7]") in found, "of a thread"
    assert found["aten.cat", "float32[2]", "float32[4]"].count == 1, "of a child"
    assert not [one for one in calls if one.call in {"aten.t", "aten.ones", "aten.detach"}], "they compute nothing"
    assert [one.count for one in calls] == sorted((one.count for one in calls), reverse=True)


def test_a_module_and_a_function_are_recorded_with_their_arguments(recorded):
    options = ("--module", "Norm", "--function", "torch.nn.functional:softmax", "--function", "torch.nn:Module")
    done, calls = recorded(SERVE, options=options)
    assert done.returncode == 3, done.stderr
    assert [(one.call, one.inputs, one.attrs, one.count) for one in calls] == [
        ("Norm", {"x": "float32[2, 32]", "weight": "float32[32]"}, {"eps": 1e-5}, 2),
        ("Norm", {"x": "float32[1, 32]", "weight": "float32[32]"}, {"eps": 1e-5}, 1),
        ("torch.nn.functional:softmax", {"input": "float32[5, 3]"}, {"dim": -1}, 1),
    ]
    assert "warning: torch.nn:Module is a type; only a function can be recorded" in done.stderr


def test_nothing_of_values_is_kept(tmp_path):
    torch = pytest.importorskip("torch")
    calls = hook.Calls(tmp_path)
    secret = torch.tensor([4711.0, 1234.5])
    calls.meet("f", [("x", secret), ("prompt", "a secret"), ("ids", [4711] * 9), ("axes", [1, 2]), ("eps", 0.5)])
    calls.meet("f", [("x", secret), ("prompt", "another"), ("ids", [4711] * 9), ("axes", [1, 2]), ("eps", 0.5)])
    calls.meet("f", [("x", object())])
    (lines,) = tmp_path.glob("*.jsonl")
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert told[0] == {"call": "f", "inputs": {"x": "float32[2]"}, "strides": {}, "attrs": {"axes": [1, 2], "eps": 0.5}}
    assert len(told) == 2, "what is not kept makes no other call"


def test_a_process_with_too_many_distinct_calls_keeps_the_first(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(hook, "MOST_CALLS", 4)
    calls = hook.Calls(tmp_path)
    for n in [*range(9), 1]:
        calls.meet("f", [("n", n)])
    (lines,) = tmp_path.glob("*.jsonl")
    assert len(lines.read_text().splitlines()) == 4
    assert list(memoryview(lines.with_suffix(".counts").read_bytes()).cast("q")) == [1, 2, 1, 1]


def test_counts_stay_with_their_calls(tmp_path):
    """A line that cannot be written has no number, NaN is one value, and what exec begins has files of its own."""
    pytest.importorskip("torch")
    for _ in range(2):
        calls = hook.Calls(tmp_path)
        calls.meet("f", [("n", 10**5000)])
        for n in (1, 1, 2):
            calls.meet("f", [("n", n)])
        for _ in range(3):
            calls.meet("f", [("n", float("nan"))])
    for lines in tmp_path.glob("*.jsonl"):
        told = [json.loads(line)["attrs"]["n"] for line in lines.read_text().splitlines()]
        numbers = memoryview(lines.with_suffix(".counts").read_bytes()).cast("q")
        assert dict(zip(told, numbers, strict=False)) == {1: 2, 2: 1, "NaN": 3}
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("print('hello')", (), "never called torch"),
        ("import torch", ("--module", "Norm"), "never called Norm"),
    ],
)
def test_a_program_that_asks_torch_nothing_is_one_sentence(recorded, text, arguments, words):
    done, calls = recorded(text, options=arguments)
    assert (done.returncode, calls) == (2, []), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("kassay: nothing was recorded: ")
    assert words in done.stderr


def test_an_interpreter_without_torch_is_one_sentence(recorded, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done, _ = recorded("import sys; sys.exit(5)", python=str(tmp_path / "bare" / "bin" / "python"))
    assert done.returncode == 5, "the program's own"
    assert "bare/bin/python has no torch\n" in done.stderr


def test_a_sitecustomize_of_the_program_still_runs(recorded, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('mine')")
    done, _ = recorded("import os, sys; print(any('kassay' in one for one in sys.path))", python="./python")
    assert done.returncode == 2
    (tmp_path / "python").write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:own" exec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done, _ = recorded("import os, sys; print(any('kassay' in one for one in sys.path))", python="./python")
    assert done.stdout == "mine\nFalse\n", done.stderr


@pytest.mark.parametrize(
    ("command", "asked", "words"),
    [
        (["true"], {"path": Path("nowhere/calls.jsonl")}, "nowhere is no folder that can be written to"),
        (["true"], {"path": Path("/dev/full")}, "/dev/full cannot be written: it is no file"),
        (["no-such-program"], {}, "no-such-program cannot be started (No such file or directory)"),
        (["true"], {"functions": ["softmax"]}, "--function takes module:name, not 'softmax'"),
        (["true"], {"functions": ["__main__:f"]}, "name a function of a module that the program imports"),
    ],
)
def test_what_cannot_be_recorded_is_refused(tmp_path, command, asked, words):
    with pytest.raises(UsageError) as refused:
        record(command, **{"path": tmp_path / "calls.jsonl", **asked})
    assert words in str(refused.value)


def test_a_command_that_is_no_python_says_why_nothing_is_there(tmp_path):
    assert "has started no Python that could be recorded" in record(["true"], tmp_path / "calls.jsonl").empty


def test_what_is_compiled_is_recorded_as_the_plain_operators(recorded):
    text = """\
        import torch
        compiled = torch.compile(lambda x: torch.relu(x) + 1)
        for n in (3, 5):
            compiled(torch.ones(n))
    """
    done, calls = recorded(text)
    assert done.returncode == 0, done.stderr
    assert {one.inputs["self"] for one in calls if one.call == "aten.relu"} == {"float32[3]", "float32[5]"}


def test_descriptors_that_a_program_closes_are_not_written_to(recorded, tmp_path):
    text = """\
        import os, torch
        torch.tanh(torch.ones(3))
        os.closerange(3, 64)
        files = [open(f"mine{n}", "wb") for n in range(32)]
        torch.tanh(torch.ones(4))
    """
    done, calls = recorded(text)
    assert done.returncode == 0, done.stderr
    assert [one.inputs["self"] for one in calls] == ["float32[3]", "float32[4]"]
    assert not any((tmp_path / f"mine{n}").stat().st_size for n in range(32))


def test_signals_that_the_recorder_gets_reach_the_program(tmp_path):
    text = """\
        import signal, time, torch
        heard = []
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: heard.append(signal.Signals(number).name))
        torch.tanh(torch.ones(3))
        open("ready", "w").close()
        while len(heard) < 2:
            time.sleep(0.01)
        open("heard", "w").write(" ".join(sorted(heard)))
        time.sleep(60)
    """
    (tmp_path / "serve.py").write_text(textwrap.dedent(text))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "kernel_assay.fuzz",
        "record",
        "-o",
        "calls.jsonl",
        "--",
        sys.executable,
        "serve.py",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL, start_new_session=True)
    appears(tmp_path / "ready")
    for number in (signal.SIGINT, signal.SIGUSR1):
        process.send_signal(number)
    appears(tmp_path / "heard")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "heard").read_text() == "SIGINT SIGUSR1"
    assert [one.inputs for one in read_calls(tmp_path / "calls.jsonl")] == [{"self": "float32[3]"}]


def appears(path):
    deadline = time.monotonic() + 60
    while not (path.exists() and (path.name != "heard" or path.read_text())) and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "call"), [("async def", "asyncio.run(module.scaled(3))"), ("def", "module.scaled(3)")]
)
def test_a_recorded_function_stays_what_it_was(kind, call):
    module = types.ModuleType("mine")
    exec(f"{kind} scaled(x, *, by=2):\n    return x * by", module.__dict__)
    was, met = module.scaled, []
    hook.record_function(module, types.SimpleNamespace(meet=lambda *given: met.append(given)), "scaled", "mine:scaled")
    assert module.scaled is not was
    assert inspect.iscoroutinefunction(module.scaled) == inspect.iscoroutinefunction(was)
    assert eval(call, {"asyncio": asyncio, "module": module}) == 6
    assert met == [("mine:scaled", [("x", 3)])]
