"""The five packages and the scripts pass `mypy --strict`."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_types():
    result = mypy()
    assert result.returncode == 0, result.stdout


def test_a_missing_annotation_is_noticed(tmp_path):
    """Under our own settings, for a file that is none of ours."""
    settings = re.sub(
        r"^packages = \[\"kernel_assay.*?\]\n(?=plugins)", "", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "bad.py").write_text("def f(x):\n    return x\n")
    result = mypy(
        "--config-file", str(tmp_path / "pyproject.toml"), "--cache-dir", str(tmp_path), str(tmp_path / "bad.py")
    )
    assert result.returncode == 1
    assert "[no-untyped-def]" in result.stdout


def test_scripts(monkeypatch):
    """They are run by hand and now and then, and must not have been left behind by what they call."""
    monkeypatch.setenv(
        "MYPYPATH",
        os.pathsep.join(
            (
                *("scripts", "scripts/bench", "scripts/duel_tools"),
                *("tests", "tests/oracles", "tests/reports", "tests/fuzz/service"),
            )
        ),
    )
    files = [path for folder in ("scripts", "scripts/bench") for path in sorted((ROOT / folder).iterdir())]
    scripts = [str(path) for path in files if path.is_file() and not path.suffix]
    assert len(scripts) > 20
    apart = [path for path in scripts if Path(path).name in sys.stdlib_module_names]  # each would hide a module
    together = [path for path in scripts if path not in apart]
    for some in (["--scripts-are-modules", *together], *([path] for path in apart)):
        result = mypy(*some)
        assert result.returncode == 0, result.stdout
