"""The processor for which numpy's OpenBLAS computes is what OPENBLAS_CORETYPE says."""

import os
import subprocess
import sys

import pytest

from kernel_assay.kernels.environment import OPENBLAS, environment, openblas_core

ASK = "from kernel_assay.kernels.environment import openblas_core; print(openblas_core())"


def test_it_is_the_one_that_was_asked_for():
    if not openblas_core():
        pytest.skip("numpy has no OpenBLAS of its own here")
    told = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    said = subprocess.run([sys.executable, "-c", ASK], env=told, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "Haswell"
    assert environment().packages[OPENBLAS] == openblas_core()
