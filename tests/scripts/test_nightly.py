"""A night: everything a person wants in the morning is there, whatever has happened to it."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from kernel_assay.corpus.storage.file_store import Store

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = ROOT / "scripts" / "nightly"
CONTRACT = """from kernel_assay.oracles.spec.contract import Contract, Dim, Input, Output

CONTRACT = Contract(
    name="tripled",
    summary="three times each element",
    dims={"rows": Dim(1, 64), "cols": Dim(1, 64)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=({"x": "float32"},),
    reference=lambda x: {"out": x * 3.0},
)
"""
GOOD = 'OP = "tripled"\n\n\ndef run(out, x):\n    out[...] = x * 3\n'
BAD = GOOD + "    out[:, 3:4] = 0\n"
TINY = "0.0003"
REPORTS = {"index.html", "report.md", "report.json", "junit.xml", "findings.sarif"}
REPLAYS = {"replay.md", "replay.json", "replay.xml"}


def place(folder, kernel):
    """A folder of a user: an op of their own, which no kernel that are built in has, so that nights are short."""
    (folder / "tripled_contract.py").write_text(CONTRACT)
    (folder / "mine.py").write_text(kernel)
    return folder


def command(*words, hours=TINY):
    own = ("--contract", "tripled_contract.py", "--subject", "mine.py")
    return [sys.executable, str(NIGHTLY), *own, "--hours", hours, *words]


def night(folder, *words, hours=TINY):
    return subprocess.run(command(*words, hours=hours), cwd=folder, capture_output=True, text=True, check=False)


def runs(folder):
    store = Store(folder / "corpus")
    return [store.load_run(name) for name in store.runs()]


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    folder = place(tmp_path_factory.mktemp("night"), BAD)
    return folder, night(folder)


def module_of(path, monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(path.parent))
    loader = SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    monkeypatch.setitem(sys.modules, path.name, module)  # where its dataclasses look for it
    loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch):
    return module_of(NIGHTLY, monkeypatch)


def test_a_night_with_findings_leaves_everything_and_exits_1(failing):
    folder, result = failing
    assert result.returncode == 1, result.stderr
    (run,) = runs(folder)
    report = folder / "out" / "nightly" / run.run
    news = {f["finding"] for f in json.loads((report / "report.json").read_text())["findings"] if f["news"]}
    assert news
    assert {p.name for p in report.iterdir()} == {
        *REPORTS,
        *REPLAYS,
        "night.json",
        *(f"reproduce_{id_}.py" for id_ in news),
    }
    assert (folder / "out" / "nightly" / "latest" / "report.md").samefile(report / "report.md")
    said = result.stdout.splitlines()
    assert said[-3:-1] == ["replay    nothing to replay", "search    1 finding in 1 kernel"]
    assert said[-1] == f"report    {Path('out/nightly', run.run, 'index.html')}"


def test_a_reproducer_of_a_night_reproduces(failing):
    folder, _ = failing
    program = next((folder / "out" / "nightly" / "latest").glob("reproduce_*.py"))
    result = subprocess.run([sys.executable, str(program)], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr


def test_the_next_night_replays_first_and_a_repaired_kernel_exits_0(failing):
    folder, _ = failing  # the last test of this folder
    (folder / "mine.py").write_text(GOOD)
    stranger = folder / "out" / "nightly" / "20200101-000000-s1"
    stranger.mkdir()
    (stranger / "report.md").write_text("somebody's own")
    (first,) = runs(folder)
    result = night(folder, "--keep", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.index("does not fail any more") < result.stdout.index("\nsearching, for")
    known = len(list((folder / "corpus/local/findings").rglob("*.json")))  # as many as the first night met
    assert known
    assert f"\nreplay    {known} does not fail any more\nsearch    No findings in " in result.stdout
    assert f"\nremoved   {first.run}\n" in result.stdout
    left = {p.name for p in (folder / "out" / "nightly").iterdir()}
    assert left == {"latest", runs(folder)[-1].run, stranger.name}
    assert (stranger / "report.md").read_text() == "somebody's own"


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s"
        time.sleep(0.05)


def begun(folder):
    return any(c.judged for c in runs(folder))


def test_a_killed_night_goes_on_with_what_is_left(tmp_path):
    place(tmp_path, BAD)
    with subprocess.Popen(
        command(hours="0.0015"), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as p:
        wait_for(lambda: begun(tmp_path), "case")
        p.kill()
    result = night(tmp_path, hours="5")
    assert result.returncode == 1, result.stderr
    (run,) = runs(tmp_path)
    assert run.finished
    cut = re.search(rf"resuming {run.run}: cut short after ([\d.]+) s of 5.4 s, ", result.stdout)
    assert "call again for what this call asks for" in result.stdout
    assert float(cut[1]) < run.seconds < 60, "what is left of 5.4 s and the time to shrink, not five hours"
    assert {*REPORTS, "night.json"} < {p.name for p in (tmp_path / "out" / "nightly" / run.run).iterdir()}


def test_a_night_that_is_stopped_still_reports(tmp_path):
    place(tmp_path, GOOD)
    with subprocess.Popen(
        command(hours="1"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as p:
        wait_for(lambda: begun(tmp_path), "case")
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=60)
    assert p.returncode == 0, out + err
    (run,) = runs(tmp_path)
    assert not run.finished
    assert "stopped; the same call goes on with it" in out
    assert {*REPORTS, *REPLAYS} < {f.name for f in (tmp_path / "out" / "nightly" / run.run).iterdir()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hours", "0"], "--hours 0 "),
        (["--hours", "nan"], "--hours nan "),
        (["--hours", "soon"], "'soon'"),
        (["--keep", "0"], "--keep 0 "),
        (["--seed", "-1"], "--seed -1 "),
        (["--jobs", "0"], "--jobs 0 "),
        (["--device", "tpu"], "device 'tpu' is not known"),
        (["no_such_op"], "no_such_op"),
        (["--subject", "gone.py"], "gone.py does not exist"),
        (["--contract", "gone.py"], "gone.py does not exist"),
        (["--out", "full"], "latest is no link of an earlier night"),
        (["--out", "file/below"], "file/below cannot be used"),
        (["--corpus", "file/below"], "cannot be used"),
        (["--hous", "3"], "--hous"),
    ],
)
def test_a_mistake_is_one_sentence_before_the_night_begins(script, monkeypatch, capsys, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "latest").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["nightly", *words])
    assert script._run.answer(script.main) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nightly: ")
    assert said in err
    assert err.count("\n") == 1


def test_where_and_with_how_many_processes_it_searches_is_handed_on(script, tmp_path):
    done = night(place(tmp_path, GOOD), "--jobs", "2", hours="0.0012")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = runs(tmp_path)
    assert (run.options["jobs"], run.options["device"]) == (2, "cpu")
    chosen = script.parser().parse_args(["silu", "--device", "cuda:all", "--jobs", "16"])
    settings = script.settings_of(chosen)
    assert (settings.ops, settings.device, settings.jobs, settings.strict) == (("silu",), "cuda:all", 16, True)
    assert script.words_of(chosen) == ("silu", "--device", "cuda:all", "--jobs", "16")


def test_a_second_night_on_the_same_corpus_is_refused(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "PATIENCE", 0.2)
    with (
        script.alone(tmp_path),
        pytest.raises(script.UsageError, match="another night is running"),
        script.alone(tmp_path),
    ):
        pass
    with script.alone(tmp_path) as held:
        assert os.fstat(held)


def made(out, name, written, *more):
    folder = out / name
    folder.mkdir(parents=True)
    for file in ("report.md", *more):
        (folder / file).write_text("")
    said = {"run": name, "written": written, "files": ["report.md", "report.json"]}
    (folder / "night.json").write_text(json.dumps(said))
    return folder


def test_only_the_oldest_are_removed_and_only_what_a_night_wrote(script, tmp_path):
    out = tmp_path / "out"
    old = made(out, "run-b", "2026-01-01")
    noted = made(out, "run-a", "2026-01-02", "notes.txt")
    new = made(out, "run-c", "2026-01-03")
    copied = made(out, "run-d", "2025-01-01").rename(out / "my-copy")
    odd = made(out, "run-e", "2025-01-01")
    (tmp_path / "precious").write_text("")
    (odd / "night.json").write_text(json.dumps({"run": "run-e", "written": "2020", "files": ["../../precious"]}))
    (out / "latest").symlink_to("run-c")
    assert script.prune(out, 2) == ["run-b"]
    assert script.prune(out, 1) == ["run-a"]
    assert not old.exists()
    assert [p.name for p in noted.iterdir()] == ["notes.txt"]
    assert all(p.exists() for p in (new, copied, odd, tmp_path / "precious", out / "latest" / "report.md"))


def test_spans_are_for_people(script):
    assert [script.span(s) for s in (7.2, 300, 28800)] == ["7.2 s", "5.0 min", "8.0 h"]


def test_the_worst_step_decides(script):
    worst = script._run.worst
    assert [worst(c) for c in ([], [0, 1], [1, 2], [2, 3, 1], [1, 130], [0, -9])] == [0, 1, 2, 3, 130, 3]
