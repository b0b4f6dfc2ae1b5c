"""The benchmarks that find seeded bugs: they find one, and say so if they do not."""

import itertools
import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_nightly import module_of

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.kernels.backends.simt.toolchain import missing

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
pytestmark = pytest.mark.skipif(bool(missing()), reason="no compiler")


def bench(name, *words):
    """Exit code, lines."""
    command = [sys.executable, str(BENCH / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_planted_bugs_are_found_each_with_its_verdict():
    code, lines = bench("planted_cuda", "silu", "--jobs", "2")
    rows = {line.split()[0]: line.split()[1:3] for line in lines if line.startswith("  silu/")}
    assert {key: kind for key, (kind, _) in rows.items()} == {
        "silu/bug_cuda_no_tail": "unwritten",
        "silu/bug_cuda_unaligned": "crashed",
        "silu/bug_cuda_whole_tail": "out_of_bounds",
    }
    assert all(0 <= float(seconds) < 20 for _, seconds in rows.values())
    assert lines[-1].startswith("planted_cuda: 0 not found of 3 (there are 3) on cpu")
    assert code == 0


def test_one_that_is_not_found_is_named(tmp_path):
    code, lines = bench("planted_cuda", "row_sum/bug_cuda_narrow", "--limit", "0.0001", "--seed", "1")
    assert "not found (mismatch: results stay right): row_sum/bug_cuda_narrow" in lines
    assert lines[-1].startswith("planted_cuda: 1 not found of 1")
    assert code == 1


def test_a_budget_that_is_not_enough_is_told():
    code, lines = bench("planted_cuda", "silu", "--budget", "0")
    assert "the budget of 0 s was enough for 0 of 3 bugs" in lines
    assert code == 0


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return module_of(BENCH / "planted_cuda", monkeypatch)


def test_on_a_gpu_those_that_it_hides_are_named_and_not_looked_for(script, monkeypatch, capsys):
    def placed(subjects, device):
        there = [s.backend == "cuda" and s.name != "bug_cuda_no_tail" for s in subjects]
        return [s.but(device=device) if on else s for s, on in zip(subjects, there, strict=True)]

    monkeypatch.setattr(script, "placed", placed)
    monkeypatch.setattr(script, "hidden_on_gpu", lambda subject: subject.name == "bug_cuda_no_tail")
    bugs, hidden = script.chosen(SimpleNamespace(bugs=["silu"], device="cuda"))
    assert [s.name for s in bugs] == ["bug_cuda_unaligned", "bug_cuda_whole_tail"]
    script.by_reason("in the emulator only", [(s.key, s.planted) for s in hidden])
    assert capsys.readouterr().out == "in the emulator only (unwritten: results stay right): silu/bug_cuda_no_tail\n"


def test_those_that_crash_are_begun_far_apart(script):
    bugs, _ = script.chosen(SimpleNamespace(bugs=[], device="cpu"))
    order = script.spread(bugs)
    assert sorted(s.key for s in order) == sorted(s.key for s in bugs)
    places = [n for n, s in enumerate(order) if s.planted == Kind.CRASHED]
    assert len(places) >= 9
    assert min(b - a for a, b in itertools.pairwise(places)) >= len(bugs) // len(places) - 1


def test_those_that_never_answer_are_not_found(script, monkeypatch):
    class Pool:
        def __init__(self, *_):
            self.answers = iter([("silu/bug_cuda_no_tail", None)])

        __enter__ = imap_unordered = lambda self, *_: self

        def __exit__(self, *_):
            return None

        def next(self, timeout):
            if (answer := next(self.answers, None)) is None:
                raise multiprocessing.TimeoutError
            return answer

    monkeypatch.setattr(script, "get_context", lambda _: SimpleNamespace(Pool=Pool))
    args = SimpleNamespace(bugs=["silu"], device="cpu", jobs=1, budget=1.0, seed=1, limit=1.0)
    bugs, hidden = script.chosen(args)
    assert [(t.key, t.seconds, t.others) for t in script.attempts(bugs, args)] == [
        ("silu/bug_cuda_unaligned", None, "no answer"),
        ("silu/bug_cuda_whole_tail", None, "no answer"),
    ]
    assert hidden == []


def test_every_error_of_a_kernel_is_told():
    code, lines = bench("errors", "--timeout", "1")
    assert lines[-1] == "errors: 6 of 6 kernels told as they must be on cpu; not: none"
    assert code == 0


def test_an_error_that_is_told_otherwise_is_marked(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    module = module_of(BENCH / "errors", monkeypatch)
    lines, _ = module.KERNELS["traps"]
    monkeypatch.setattr(module, "KERNELS", {"right": ("", {Kind.PASS}), "traps": (lines, {Kind.TIMEOUT})})
    monkeypatch.setattr(sys, "argv", ["errors"])
    assert module.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if "WRONG" in line] == ["traps"]
    assert said[-1] == "errors: 1 of 2 kernels told as they must be on cpu; not: traps"
