"""What is installed: one package with the built-in implementations, which lives beside any other project."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from tree import MACHINERY, PACKAGES, ROOT

from kernel_assay import __version__

TOP = "kernel_assay"
WRITTEN = ("corpus/regressions/silu/a.json", "corpus/seeds/silu.jsonl", "corpus/local/findings/silu/b.json")
UNINSTALLED = tuple(f"{TOP}/corpus/{name}" for name in ("regressions", "seeds", "local"))
INTRUDER = "raise RuntimeError('another project was imported')\n"
KERNEL = """\
import numpy as np
from kernels.scale import ONE


def silu(x):
    with np.errstate(all="ignore"):
        out = (x / (ONE + np.exp(-x.astype(np.float64)))).astype(x.dtype)
    out.reshape(-1)[32:] *= 2
    return out
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and a wheel made of it, from a copy that also holds what runs and people put into a checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, TOP, "docs", "tests", "scripts"):
        ignored = shutil.ignore_patterns("__pycache__", "local", "regressions")
        shutil.copytree(ROOT / name, source / name, ignore=ignored, symlinks=True)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    for name in WRITTEN:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("{}\n")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (made,) = built.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel):
    return zipfile.ZipFile(wheel).namelist()


def test_there_is_one_package(names):
    tops = {name.partition("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {TOP}
    assert len(tops) == 2
    assert f"{TOP}/__init__.py" in names


def test_what_was_written_is_left_out(names):
    assert [name for name in names if name.startswith(UNINSTALLED)] == []
    assert [name for name in names if "__pycache__" in name] == []


def test_the_implementations_are_in_it(names):
    folders = [p for p in (ROOT / "kernels").iterdir() if p.is_dir() and p.name not in MACHINERY]
    kinds = {".py", ".cu", ".cuh", ".toml"}
    files = {f"{TOP}/{p.relative_to(ROOT)}" for f in folders for p in f.glob("*") if p.suffix in kinds}
    assert {Path(name).suffix for name in files} == kinds
    assert files - set(names) == set()


def test_the_sdist_has_what_its_readers_need(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    documents = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "kernel_assay/__init__.py"} | documents <= names
    assert [name for name in names if name.startswith(WRITTEN)] == []


def test_what_an_index_is_told_is_valid_and_the_version_stands_in_one_place(wheel, names):
    (said,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    told = Metadata.from_email(zipfile.ZipFile(wheel).read(said), validate=True)
    assert (told.name, str(told.version)) == ("kernel-assay", __version__)
    assert (told.license_expression, told.description_content_type) == ("Apache-2.0", "text/markdown")
    assert told.description == (ROOT / "README.md").read_text("utf-8")
    assert {"torch", "triton", "simt", "gpu"} <= set(told.provides_extra or ())
    needed = [one for one in told.requires_dist or () if one.marker is None]
    assert all(isinstance(one, Requirement) and one.url is None for one in needed)
    assert __version__ not in (ROOT / "pyproject.toml").read_text("utf-8")


def test_every_module_is_in_it(names):
    modules = {f"{TOP}/{p.relative_to(ROOT)}" for n in PACKAGES for p in (ROOT / n).rglob("*.py")}
    assert {m for m in modules if not m.startswith(UNINSTALLED)} - set(names) == set()


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of programs of an environment that has this wheel, what it needs, and Hugging Face's `kernels`."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # a .pth file in there is not read
    (site / "kernels").mkdir()
    (site / "kernels" / "__init__.py").write_text(INTRUDER)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True)
    return home / "bin"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository with folders of the same names as ours; a kernel uses one of them."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("corpus", "fuzz", "oracles", "reports"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("" if name == "corpus" else INTRUDER)  # pytest itself imports that
    (folder / "kernels").mkdir()
    (folder / "kernels" / "__init__.py").write_text("")
    (folder / "kernels" / "scale.py").write_text("ONE = 1.0\n")
    (folder / "mine.py").write_text(KERNEL)
    return folder


def run(program, *arguments, cwd):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([program, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_it_is_used_in_a_project_with_the_same_folders(installed, project):
    """A run, what it prints, replay, the reproducer and the pytest plugin; workers use the project's own `kernels`."""
    kassay = installed / "kassay"
    found = run(kassay, "run", "silu", "--subject", "mine.py", "--peer", "numpy_float32", "--cases", "200", cwd=project)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "mismatch" in found.stdout
    assert "another project" not in found.stdout + found.stderr
    printed = re.search(r"kassay replay (\S+)", found.stdout)
    assert printed, found.stdout
    assert "python -m fuzz" not in found.stdout + found.stderr
    again = run(kassay, "replay", printed[1], cwd=project)
    assert again.returncode == 1, again.stdout + again.stderr
    (finding, *_) = (project / "corpus" / "local" / "findings").rglob("*.json")
    tests = run(
        installed / "python", "-m", "pytest", "-p", "no:cacheprovider", "-o", "kassay_corpus=corpus/local/findings",
        str(finding.relative_to(project)), cwd=project,
    )  # fmt: skip
    assert tests.returncode == 1, tests.stdout + tests.stderr
    assert "kassay show" in tests.stdout
    shown = run(kassay, "show", printed[1], "--reproducer", "shown.py", cwd=project)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    alone = run(installed / "python", "shown.py", cwd=project)
    assert "reproduced" in alone.stdout, alone.stdout + alone.stderr


@pytest.mark.parametrize("module", ["fuzz", "fuzz.shrink", "reports"])
def test_modules_run_in_a_checkout(module):
    result = run(sys.executable, "-m", module, "--help", cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert "python -m" in result.stdout


def test_the_package_is_a_folder_of_links():
    assert {p.name: Path(p).resolve() for p in (ROOT / TOP).iterdir() if p.is_symlink()} == {
        name: ROOT / name for name in PACKAGES
    }
