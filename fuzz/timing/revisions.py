"""Get files as they were in a revision of git, with all that lies beside them."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.scratch_folders import Scratch


def _git(folder: Path, *words: str) -> str:
    """Output of git, without the end of the line. Raises UsageError with git's own last words."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)  # noqa: S607
    except OSError as error:
        raise UsageError(f"git cannot be run ({error.strerror}): an earlier revision is read by it") from error
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise UsageError(f"git {words[0]}: {said}")
    return done.stdout.rstrip("\n")


def head(folder: Path) -> str:
    """The revision that is checked out in a folder; empty if it is none of git's."""
    try:
        return _git(folder, "rev-parse", "HEAD")
    except UsageError:
        return ""


@contextmanager
def checked_out(file: Path, revision: str) -> Iterator[Path]:
    """Lend a file as of a revision of the repository that it is in; everything tracked lies beside it, but submodules.

    Raises UsageError if it is in none, if there is no such revision, and if the file was not there.
    """
    try:
        top = Path(_git(file.parent, "rev-parse", "--show-toplevel"))
    except UsageError as error:
        raise UsageError(
            f"{revision!r} is no file and no kept run of times, and {file} is in no git repository"
        ) from error
    name = _commit(top, revision)
    place = file.resolve().relative_to(top.resolve())
    if not _git(top, "ls-tree", "--name-only", name, "--", str(place)):
        raise UsageError(f"{place} does not exist in {revision} ({name[:12]})")
    scratch = Scratch("rev-")
    try:
        tar, root = scratch.path / "all.tar", scratch.path / "tree"
        _git(top, "archive", "--format=tar", f"--output={tar}", name)
        with tarfile.open(tar) as archive:
            archive.extractall(root, filter="data")
        tar.unlink()
        yield root / place
    finally:
        scratch.close()


def _commit(top: Path, revision: str) -> str:
    try:
        return _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except UsageError as error:
        raise UsageError(f"{revision!r} is no revision of {top}, no file, and no kept run of times") from error
