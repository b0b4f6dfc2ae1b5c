"""The clean control tells of a kernel that is wrong as soon as it is met, and of none that is right."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_nightly import module_of

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
BODY = """
import numpy as np
OP = "silu"

def run(out, x):
    w = x.astype(np.float64)
    out[...] = w / (1 + np.exp(-w))
"""
WRONG = "    if x.size > 40:\n        out[-1] = 7\n"


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(BENCH.parents[1] / ".venv"))  # this interpreter will do
    return module_of(BENCH / "clean", monkeypatch)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_wrong_kernel_is_told_of_with_its_case_and_a_right_one_is_not(clean, monkeypatch, tmp_path, capsys, jobs):
    for name, lines in (("right", ""), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(BODY + lines)
    ours = [word for name in ("right", "wrong") for word in ("--subject", str(tmp_path / f"{name}.py"))]
    more = ["--jobs", str(jobs), "--cases", "256", "--after", "1", "--seed", "1"]
    monkeypatch.setattr(sys, "argv", ["clean", *ours, *more])
    assert clean.main() == 1
    out = capsys.readouterr().out
    failures = [line for line in out.splitlines() if line.startswith("failure: ")]
    assert failures
    assert all(line.startswith("failure: silu/wrong: ") for line in failures)
    assert '  case {"attrs"' in out
    assert "silu/right" in out
    assert "clean: " in out.splitlines()[-1]


def test_an_output_that_nobody_can_judge_is_no_failure_and_a_declined_case_is_no_judged_one(clean):
    kinds = {"pass": 90, "unsupported": 7, "inconclusive": 2, "timeout": 1}
    campaign = SimpleNamespace(by_subject={"silu/mine": kinds}, max_rho={"silu/mine": 0.25})
    row = clean.row(campaign, "silu/mine")
    assert row == ["silu/mine", "93", "90", "7", "2", "1", "0.250"]
