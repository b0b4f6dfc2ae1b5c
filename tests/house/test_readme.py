"""The first example of the README does what the README says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_kernel_of_the_readme_fails_as_shown(tmp_path):
    readme = (ROOT / "README.md").read_text("utf-8")
    code = re.search(r"```python\n# my_softmax.py\n(.*?)```", readme, re.DOTALL)[1]
    command = re.search(r"python -m fuzz (run softmax --subject my_softmax.py) --budget 10s", readme)[1].split()
    (tmp_path / "my_softmax.py").write_text(code, "utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "fuzz", *command, "--cases", "320", "--seed", "1", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    shown = re.search(r"```text\n(.*?)```", readme, re.DOTALL)[1].splitlines()
    for line in (shown[1], shown[2], shown[4]):  # what is wrong, who says so, and when
        assert line in result.stdout.splitlines()
    assert "softmax float32 x=1x2:zeros" in result.stdout
