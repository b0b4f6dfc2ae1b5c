"""The script for a GPU, without one: its kernels are as right and as wrong as it says, and so is its table."""

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Fill
from kernel_assay.corpus.model.findings import Sanitized
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.nvidia.profiler import Profile

ROOT = Path(__file__).resolve().parents[2]
FINDS = {
    "memcheck": {Kind.OUT_OF_BOUNDS},
    "racecheck": {Kind.RACE, Kind.NONDETERMINISTIC},
    "initcheck": {Kind.UNINITIALIZED, Kind.NONFINITE, Kind.NONDETERMINISTIC},
    "synccheck": {Kind.DIVERGENT},
}
"""What the emulator says of what a tool must find."""


@pytest.fixture
def script(monkeypatch):
    path = ROOT / "scripts" / "gpu_sanitize_check"
    loader = SourceFileLoader("gpu_sanitize_check", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_sanitize_check", loader))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module.sanitizer, "missing", lambda program: "")
    monkeypatch.setattr(module, "placed_on_gpu", lambda subject: subject)
    monkeypatch.setattr(sys, "argv", ["gpu_sanitize_check"])
    return module


def said(name, tool, **fields):
    line = f"thread 0 of block 0 is wrong in check ({name}.cu, line 14)"
    return Sanitized(
        tool=tool, **{"errors": int(name != "right"), "message": line if name != "right" else "", **fields}
    )


@pytest.fixture
def works(script, monkeypatch):
    """Tools that do what they are there for; one that is named does something else."""

    def tools(other="", **fields):
        def sanitize(case, subject, tools, seconds):
            return [said(subject.name, t, **(fields if f"{subject.name} {t}" == other else {})) for t in tools]

        monkeypatch.setattr(script, "sanitize", sanitize)
        monkeypatch.setattr(script, "by_ncu", lambda *_: [Profile("check", 2.5, 1.0, 2.0, 16.0, 50.0)])

    return tools


def test_the_table_says_what_each_tool_found(script, works, capsys):
    works()
    assert script.main() == 0
    rows = [row.split() for row in re.split(r"^  (?! )", capsys.readouterr().out, flags=re.MULTILINE)[2:]]
    assert [row[:3] for row in rows] == [
        *([name, tool, "yes"] for tool, (name, _, _) in script.WRONG.items()),
        *(["right", tool, "no"] for tool in FINDS),
        ["right", "ncu", "yes"],
    ]
    assert all(row[3:5] == ["as", "expected"] for row in rows)


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ("one_more memcheck", {"errors": 0, "message": ""}),
        ("one_more memcheck", {"message": "without a line"}),
        ("right racecheck", {"errors": 1, "message": "an alarm for nothing"}),
        ("right synccheck", {"trouble": "it gave no answer within 60 s"}),
    ],
)
def test_what_is_not_as_expected_is_marked(script, works, capsys, other, fields):
    works(other, **fields)
    assert script.main() == 1
    wrong = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    assert wrong == [other.split()]


def test_a_profiler_that_measures_nothing_is_marked(script, works, monkeypatch, capsys):
    def refuse(*_):
        raise UsageError("no permission")

    works()
    monkeypatch.setattr(script, "by_ncu", refuse)
    assert script.main() == 1
    assert "no permission" in next(line for line in capsys.readouterr().out.splitlines() if "WRONG" in line)


def test_without_the_tools_it_is_one_sentence(script, monkeypatch, capsys):
    monkeypatch.setattr(script.sanitizer, "missing", lambda program: f"{program} is not on the PATH")
    assert script.main() == 2
    assert capsys.readouterr().err == "gpu_sanitize_check: compute-sanitizer is not on the PATH\n"


@pytest.mark.skipif(bool(missing()), reason="no compiler")
@pytest.mark.parametrize("tool", [*FINDS, "none"])
def test_its_kernels_are_what_it_takes_them_for(script, tmp_path, tool):
    name, old, new = script.WRONG.get(tool, ("right", "", ""))
    path = tmp_path / f"{name}.cu"
    path.write_text(script.HEAD + script.RIGHT.replace(old, new))
    subject = user_subject(str(path), ())
    x = script.CASE.tensors["x"]
    cases = [script.CASE.but(tensors={"x": x.but(fill=Fill(distribution="normal", seed=s))}) for s in range(12)]
    with Examiner([subject]) as examiner:
        kinds = {c.verdicts[subject.key].kind for c in examiner.check(CheckRequest(c, (subject.key,)) for c in cases)}
    assert kinds == {Kind.PASS} if tool == "none" else kinds & FINDS[tool], kinds
