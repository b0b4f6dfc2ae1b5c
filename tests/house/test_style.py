"""All rules of ruff, but for those that pyproject.toml names with a reason; one format."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ruff(*arguments, text=None):
    command = [sys.executable, "-m", "ruff", *arguments]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)


def test_rules():
    result = ruff("check", "--output-format", "concise", ".")
    assert result.returncode == 0, result.stdout


def test_format():
    result = ruff("format", "--check", ".")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_broken_rule_and_a_bad_format_are_noticed():
    bad = "import os\nx = {  'a':1 }\n"
    assert "F401" in ruff("check", "--stdin-filename", "fuzz/bad.py", "-", text=bad).stdout
    assert ruff("format", "--check", "--stdin-filename", "fuzz/bad.py", "-", text=bad).returncode == 1


def test_every_ignored_rule_has_a_reason():
    section = (
        (ROOT / "pyproject.toml").read_text().partition("[tool.ruff.lint]")[2].partition("\n[tool.ruff.lint.py")[0]
    )
    codes = re.findall(r'^    "[A-Z]+[0-9]*",.*$', section, re.MULTILINE)
    assert len(codes) > 10
    assert [line for line in codes if not re.search(r"#\s+\S+ \S+", line)] == []


@pytest.mark.parametrize("package", ["fuzz", "kernels", "oracles", "corpus", "reports"])
def test_no_file_is_exempt_as_a_whole(package):
    exempt = re.compile(r"^\s*#\s*(ruff|flake8): noqa|^\s*#\s*mypy: ignore|# noqa\s*$|# type: ignore\s*$", re.MULTILINE)
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [str(f) for f in files if exempt.search(f.read_text(encoding="utf-8"))] == []
