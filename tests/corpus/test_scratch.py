"""Temporary folders: those of dead owners are removed by the next one, and nobody else's."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kernel_assay.corpus.process import scratch_folders
from kernel_assay.corpus.process.scratch_folders import Scratch

OWNER = (
    "import sys; from kernel_assay.corpus.process.scratch_folders import Scratch; "
    "s = Scratch(); print(s.path, flush=True); sys.stdin.read()"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch_folders._sweep.cache_clear()
    yield tmp_path
    scratch_folders._sweep.cache_clear()


def aged(path):
    before = time.time() - 3600
    os.utime(path, (before, before))
    return path


def owner(folder):
    """A process that has a folder, and that folder."""
    env = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", OWNER], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return process, Path(process.stdout.readline().decode().strip())


def test_the_folder_of_who_was_killed_is_removed_by_the_next_one_and_of_who_lives_is_not(folder):
    (dead, left), (alive, used) = owner(folder), owner(folder)
    (left / "deep").mkdir()
    (left / "deep" / "file").write_text("left")
    dead.kill()
    dead.communicate()
    mine, young = folder / "kernel-assay-run-mine", folder / "kernel-assay-run-young"
    young.mkdir()
    mine.mkdir()
    others = [folder / "kernel-assay-older", folder / "else"]
    for path in (left, used, mine, *others):
        path.mkdir(exist_ok=True)
        aged(path)
    made = Scratch("now-")
    assert {p.name for p in folder.iterdir()} == {p.name for p in (used, young, *others, made.path)}
    alive.communicate()
    made.close()
    assert not made.path.exists()


def test_a_link_to_elsewhere_is_not_followed(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").touch()
    aged(elsewhere)
    (folder / "kernel-assay-run-link").symlink_to(elsewhere)
    Scratch().close()
    assert (elsewhere / "file").exists()


def test_who_closes_it_twice_closes_no_file_of_others(folder):
    made = Scratch()
    made.close()
    with (folder / "other").open("w") as other:
        made.close()
        other.write("open")
    assert (folder / "other").read_text() == "open"
