"""The first example of the README does what the README says, and `make run` tells just that story."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = 60
"""Fewer than that `make run` prints: what nobody reads to the end is no story."""


def test_the_kernel_of_the_readme_is_found_and_right_after_its_repair(tmp_path):
    story = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo", "--folder", tmp_path, "--limit=--cases 96"],
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.strip() for line in story.stdout.splitlines()]
    assert story.returncode == 0, story.stderr
    assert len(told) < LINES
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = [line.strip() for line in re.search(r"```text\n(.*?)```", readme, re.DOTALL)[1].splitlines()]
    always = ("out[0, 0]", "consensus", "condition", "show", "replay", "shrink")
    assert [line for line in shown if line.startswith(always) and line not in told] == []
    assert sum(line.startswith(always) for line in shown) == len(always)
    assert "x=1x2:zeros" in story.stdout
    assert told.count("findings: none") == 2, "right kernels, and the repaired one"
    assert "1 replayed: 1 fails" in told
    assert "1 replayed: 1 does not fail any more" in told
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "1 finding in 1 kernel" in page
