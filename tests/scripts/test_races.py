"""The bench of pairs of kernels: check mode tells every racy one from its twin that is right."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assay.kernels.backends.simt.toolchain import missing

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
pytestmark = pytest.mark.skipif(bool(missing()), reason="no compiler")


def bench(*words, **environment):
    command = [sys.executable, str(BENCH / "races"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **environment)


def test_every_racy_kernel_is_told_from_its_twin():
    done = bench("--seeds", "1")
    pairs = sum(file.read_text().count("\nKERNEL(") for file in (BENCH / "race_kernels").glob("*.cu"))
    assert pairs >= 60
    assert done.stdout.splitlines()[-1] == f"races: found {pairs} of {pairs}, false 0 of {pairs}"
    assert done.returncode == 0


def test_what_is_asked_of_it_and_is_not_there_is_one_sentence():
    done = bench("no_such_pair")
    assert (done.returncode, done.stderr) == (2, "races: there is no pair 'no_such_pair'\n")
