"""A pull request fails for what it has done itself, and for nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from test_nightly import BAD, GOOD, module_of, place

from kernel_assay.fuzz.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
REPLAY_CI = ROOT / "scripts" / "replay_ci"
FILES = {f"{name}.{suffix}" for name in ("replay", "search") for suffix in ("xml", "sarif", "md")}


def job(folder, *words, summary=None):
    command = [sys.executable, str(REPLAY_CI), "--contract", "tripled_contract.py", *words]
    env = {**os.environ, "GITHUB_STEP_SUMMARY": str(summary)} if summary else os.environ
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """A checkout whose kernel fails."""
    return place(tmp_path_factory.mktemp("head"), BAD)


@pytest.fixture(scope="module")
def introduced(head, tmp_path_factory):
    """The job of the pull request that broke it, and the summary of the job, to which others have written."""
    base = place(tmp_path_factory.mktemp("good"), GOOD)
    summary = base / "summary.md"
    summary.write_text("of another step\n")
    changed = ("mine.py", "tripled_contract.py", "gone.py", "README.md")
    return job(head, "--base", str(base), "--budget", "1s", "--changed", *changed, summary=summary), summary


@pytest.fixture
def script(monkeypatch):
    return module_of(REPLAY_CI, monkeypatch)


def failures(path):
    return [case.get("name") for case in ET.parse(path).iter("testcase") if case.find("failure") is not None]


def levels(path):
    return {result["level"] for result in json.loads(path.read_text())["runs"][0]["results"]}


def test_a_failure_that_the_change_introduces_fails_the_job(head, introduced):
    result, summary = introduced
    assert result.returncode == 1, result.stderr
    assert "not searched: tripled_contract.py" in result.stdout
    assert "gone.py" not in result.stdout
    assert {p.name for p in (head / "out" / "ci").iterdir()} >= FILES
    assert len(failures(head / "out" / "ci" / "search.xml")) == 2
    assert levels(head / "out" / "ci" / "search.sarif") == {"error"}
    text = summary.read_text()
    assert text.startswith("of another step\n## Replay: ")
    assert "## 1 finding in 1 kernel\n" in text


def test_a_failure_that_the_base_has_does_not(head, introduced, tmp_path):
    place(tmp_path, BAD)
    result = job(head, "--base", str(tmp_path), "--budget", "1s", "--changed", "mine.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 fails on the base, too" in result.stdout
    for name in ("replay", "search"):
        assert failures(head / "out" / "ci" / f"{name}.xml") == []
        assert levels(head / "out" / "ci" / f"{name}.sarif") == {"note"}


def test_without_a_base_whatever_fails_does(head, introduced):
    result = job(head)
    assert result.returncode == 1, result.stderr
    assert "searching" not in result.stdout
    assert len(failures(head / "out" / "ci" / "replay.xml")) == 2
    left = {p.name for p in (head / "out" / "ci").iterdir()}
    assert left == {"replay.xml", "replay.sarif", "replay.md"}, "nothing is left of the job before"


def test_what_the_base_guards_against_is_not_known_there(head, introduced, tmp_path):
    """A case that was committed so that it cannot come back, and comes back."""
    found = sorted((head / "corpus" / "local" / "findings").rglob("*.json"))
    assert main(["promote", *(path.stem for path in found), "--corpus", str(head / "corpus")]) == 0
    place(tmp_path, GOOD)
    shutil.copytree(head / "corpus" / "regressions", tmp_path / "corpus" / "regressions")
    result = job(head, "--base", str(tmp_path))
    assert result.returncode == 1, result.stdout


def test_changed_files_are_sorted_out(script, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text('OP = "silu"\n\n\ndef run(out, x):\n    out[...] = x\n')
    Path("typo.py").write_text('OP = "sliu"\n')
    Path("notes.txt").write_text("")
    Path("settings.toml").write_text("[project]\n")
    names = ("silu/torch_silu.py", "silu/numpy_float32.py", "catalog.py", "rope/bug_cuda_layout.toml")
    house = [str(ROOT / "kernels" / name) for name in names]
    changed = ["a.py", "typo.py", "notes.txt", "gone.py", "settings.toml", *house]
    assert script.sort_out(changed) == (["silu", "rope"], ["a.py"])
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in said] == [f"not searched: {name}" for name in ("typo.py", house[2])]


@pytest.mark.parametrize(
    ("words", "searched"),
    [
        ([], []),
        (["--budget", "1s"], [("search", (), ())]),
        (["--budget", "1s", "--subject", "x.py"], [("search", (), ("x.py",))]),
        (["--budget", "1s", "--changed"], []),
        (["--budget", "1s", "--changed", str(ROOT / "kernels/rope/torch_stack.py")], [("built-in", ("rope",), ())]),
    ],
)
def test_what_is_searched(script, monkeypatch, words, searched):
    monkeypatch.setattr(sys, "argv", ["replay_ci", *words])
    made = list(script.searches(script.options()))
    assert [(name, settings.ops, settings.subjects) for name, settings in made] == searched
    assert all(settings.strict and settings.until == (1.0, None) for _, settings in made)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "nowhere"], "the base nowhere is no folder"),
        (["--budget", "soon"], "'soon'"),
        (["--changed", "a.py"], "--budget"),
        (["--budget", "1s", "--changed", "a.py", "--subject", "a.py"], "exclude one another"),
        (["--contract", "gone.py"], "gone.py does not exist"),
        (["--buget", "3"], "--buget"),
        (["--out", "file/below"], "file/below cannot be used"),
    ],
)
def test_a_mistake_is_one_sentence(script, monkeypatch, capsys, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["replay_ci", *words])
    assert script._run.answer(script.main) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("replay_ci: ")
    assert said in err
    assert err.count("\n") == 1
