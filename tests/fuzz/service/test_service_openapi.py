"""Schemathesis takes away how Hypothesis prints, for the whole process: it has one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_no_request_brings_about_a_fault(tmp_path):
    pytest.importorskip("sqlalchemy")
    asked = Path(__file__).with_name("openapi_asked.py")
    environment = {**os.environ, "PYTHONPATH": str(asked.parents[3])}
    words = [sys.executable, str(asked), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
