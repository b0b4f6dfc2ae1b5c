"""What is installed: the five packages with the house's subjects, and nothing that a run wrote."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernel_assay.corpus.house import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ("corpus/regressions/silu/a.json", "corpus/seeds/silu.jsonl", "corpus/local/findings/silu/b.json")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Names in a wheel built from a copy that also holds what runs and people put into a checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "tests", "scripts"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "local", "regressions")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    for name in WRITTEN:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("{}\n")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_is_the_five_packages(names):
    tops = {name.partition("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == set(PACKAGES)
    assert len(tops) == len(PACKAGES) + 1


def test_what_was_written_is_left_out(names):
    assert [name for name in names if name.startswith(("corpus/regressions", "corpus/seeds", "corpus/local"))] == []
    assert [name for name in names if "__pycache__" in name] == []


def test_the_subjects_are_in_it(names):
    subjects = {
        str(p.relative_to(ROOT)) for p in (ROOT / "kernels").glob("*/*") if p.suffix in {".py", ".cu", ".cuh", ".toml"}
    }
    assert {".py", ".cu", ".cuh", ".toml"} == {Path(name).suffix for name in subjects}
    assert subjects - set(names) == set()


def test_every_module_is_in_it(names):
    modules = {str(p.relative_to(ROOT)) for n in PACKAGES for p in (ROOT / n).rglob("*.py")}
    modules = {m for m in modules if not m.startswith(("corpus/regressions", "corpus/seeds", "corpus/local"))}
    assert modules - set(names) == set()
