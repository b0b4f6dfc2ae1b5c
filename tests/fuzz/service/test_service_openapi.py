"""Schemathesis takes away how Hypothesis prints, for the whole process: it has one of its own."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_no_request_brings_about_a_fault():
    pytest.importorskip("sqlalchemy")
    asked = Path(__file__).with_name("openapi_asked.py")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(asked)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
