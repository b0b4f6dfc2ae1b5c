"""The bench of witnesses: small inputs that show a race, and none for the twin that is right."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assay.kernels.backends.simt.toolchain import missing

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "witness"
pytestmark = pytest.mark.skipif(bool(missing()), reason="no compiler")


def bench(*words):
    command = [sys.executable, str(BENCH), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_pair():
    done = bench("queue_of_a_block", "--cases", "50")
    assert "  2 vertices  " in done.stdout
    assert "false 0 of 1 (goal: all, none)" in done.stdout.splitlines()[-1]


def test_what_is_not_there_is_one_sentence():
    done = bench("no_such_pair")
    assert (done.returncode, done.stderr) == (2, "witness: there is no pair 'no_such_pair'\n")
