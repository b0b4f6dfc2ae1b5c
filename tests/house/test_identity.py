"""Other projects are called `kernels` or `reports` too: if one of them stands before ours, it is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_assay.corpus.house import PACKAGES, check_house

from kernel_assay.corpus.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def intruder(tmp_path):
    def make(name):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise RuntimeError('the intruder was run')\n")
        return tmp_path / "site"

    return make


def python(*arguments, site, cwd):
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["kernels", "oracles", "reports"])
def test_the_commands_name_an_intruder(intruder, tmp_path, name):
    site = intruder(name)
    result = python("-m", "fuzz", "list", site=site, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith(f"fuzz: the package '{name}' comes from {site / name}, not from {ROOT / name}")


def test_the_commands_name_an_intruder_called_corpus(intruder, tmp_path):
    """It comes too early for check_house, which lies in that very package."""
    site = intruder("corpus")
    (site / "corpus" / "__init__.py").write_text("")
    result = python("-m", "fuzz", "list", site=site, cwd=tmp_path)
    assert result.returncode == 2
    (sentence,) = result.stderr.splitlines()
    assert "the package 'corpus' is another project's" in sentence


def test_without_an_intruder_the_commands_run(tmp_path):
    result = python("-m", "fuzz", "list", site=tmp_path, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_folder_called_corpus_is_no_intruder(tmp_path):
    """Every run makes one where it is started."""
    (tmp_path / "corpus").mkdir()
    result = python("-m", "fuzz", "list", site=tmp_path / "nowhere", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_worker_names_an_intruder_before_anything_else(intruder, tmp_path):
    result = python(
        "-c", "from kernel_assay.kernels.worker.zygote import main; main()", site=intruder("reports"), cwd=tmp_path
    )
    assert result.returncode != 0
    assert "the package 'reports' comes from" in result.stderr
    assert "the intruder was run" not in result.stderr


def test_the_check_imports_nothing(tmp_path):
    code = "import sys; from kernel_assay.corpus.house import *; check_house(); print({m.partition('.')[0] for m in sys.modules})"
    result = python("-c", code, site=tmp_path, cwd=tmp_path)
    assert "'corpus'" in result.stdout
    assert not [name for name in PACKAGES if name != "corpus" and f"'{name}'" in result.stdout]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("corpus.house.PACKAGES", (*PACKAGES, "no_such_package"))
    with pytest.raises(UsageError, match="the package 'no_such_package' is missing"):
        check_house()
