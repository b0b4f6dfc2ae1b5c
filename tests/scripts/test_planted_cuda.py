"""The benchmarks that find planted bugs: they find one, and say so if they do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.simt.toolchain import missing

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


def test_every_error_of_a_kernel_is_told():
    code, lines = bench("errors", "--timeout", "1")
    assert lines[-1] == "errors: 6 of 6 kernels told as they must be on cpu; not: none"
    assert code == 0


def test_an_error_that_is_told_otherwise_is_marked():
    code, lines = bench("errors", "--timeout", "1e-9")
    assert code == 1
    assert any("WRONG" in line for line in lines)
