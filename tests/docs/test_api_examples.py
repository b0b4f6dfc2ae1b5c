"""The examples of docs/api.md, in their order, in one folder, each as a program of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python( file=\S+)?\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)


def test_every_example_runs(tmp_path):
    assert sum(not name for name, _ in BLOCKS) == 7
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name, text in BLOCKS:
        if name:
            (tmp_path / name.removeprefix(" file=")).write_text(text)
            continue
        program = [sys.executable, "-c", text]
        done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), text + done.stdout + done.stderr
        assert done.stdout or "print(" not in text, text
