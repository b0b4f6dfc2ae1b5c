"""A place for one task at a time: its folder, and the executor that is kept warm in it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.child import HOME
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.corpus.storage.file_store import FOLDERS
from kernel_assay.fuzz.service.work.executor import Executor, compiled_ahead
from kernel_assay.kernels.sandbox.closing import why_open
from kernel_assay.kernels.sandbox.compiler_caches import cache_folders, cache_home, compiler_caches

WARM = ("numpy",)
"""Loaders of which a pool is started before anybody asks; the others when a task needs them."""
MOST_SERVED = 500
"""Tasks of one executor."""
STORE_MB = 2048
"""Of memory for the stores of tasks."""
COMPILED = "kernel-assay-judge"
"""Folder, beside the cache that kernels may write to, of the judge's own machine code."""
SECRET = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc"),
    *(".pgpass", ".npmrc", ".bash_history", ".zsh_history", ".python_history", ".psql_history"),
)
"""What nobody may see who runs what was sent, of a home that is shown for what else lies in it."""
_OF_PROGRAMS = re.compile(r"(|LD_LIBRARY_|PYTHON|CUDA_)PATH|(CUDA|ROCM)_HOME|CC|CXX")
"""Variables that name where programs and libraries lie."""
_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|TMPDIR|SHELL|TERM|VIRTUAL_ENV|PYTHON.*|XDG_CACHE_HOME|LD_LIBRARY_PATH"
    r"|(HTTPS?|NO|https?|no)_(PROXY|proxy)|SSL_CERT_.*|CUDA_.*|NVIDIA_.*|HIP_.*|ROCR_.*|TRITON_.*|TORCH.*"
    r"|CUPY_.*|NUMBA_.*|KERNEL_ASSAY_.*|OMP_.*|CC|CXX"
)
"""Variables that stay in a process that runs what was sent."""
UNNAMED = "problem"
"""The folder of what was sent, and so the name of a problem that lies in it and has no other: one bug has one name."""
_COMPILING = threading.Lock()


def forget_variables() -> None:
    """Take all variables out of the environment that are not needed: what was sent could read them."""
    for variable in [one for one in os.environ if not _KEPT.fullmatch(one)]:
        del os.environ[variable]


class Slot:
    """One place. Nothing in it is shared with another, and each is hidden from the others."""

    def __init__(self, number: int, memory_mb: int, *, closed: bool) -> None:
        """number: of the place, from 0 on; closed: whether what runs here is closed in."""
        self._number, self._closed, self._memory_mb = number, closed, memory_mb
        self._scratch = Scratch("work-")
        self.folder = self._scratch.path
        self._hidden: list[str] = []
        self._readable: list[str] = []
        self._executor: Executor | None = None
        self._task = 0

    def hide(self, places: Iterable[Path], readable: Iterable[Path] = ()) -> None:
        """Hide files and folders from what runs here, and all that is not the system's; readable: what is seen of that.

        What of /etc not everybody may read is hidden, too.
        """
        home = Path.home()
        private = (path for path in Path("/etc").rglob("*") if not (path.lstat().st_mode & 0o004 or path.is_symlink()))
        ours = (HOME / "kernel_assay/corpus" / name for name in FOLDERS)
        hidden = (*places, *(home / name for name in SECRET), *private, *ours)
        self._hidden = sorted({str(place.resolve()) for place in hidden})
        self._readable = [str(place.absolute()) for place in readable]

    def try_out(self) -> None:
        """Raise UsageError if nothing can be closed in here, and is to be."""
        if self._closed and (why := why_open()):
            raise UsageError(f"kernels cannot be closed in on this machine ({why}); --open runs them with your rights")

    def device(self, gpus: int) -> str:
        """The device of tasks for a GPU in this place."""
        return f"cuda:{self._number % gpus}" if gpus else "cpu"

    def warm_up(self) -> None:
        """Start the executor; then compile what judges, if that was never done here, and let the next one have it."""
        self.executor()
        if self._closed and not _compiled() and _COMPILING.acquire(blocking=False):
            threading.Thread(target=compiled_ahead, args=(_machine_code(),), daemon=True).start()

    def executor(self) -> Executor:
        """The executor, which is started if there is none. Raises GoneError if it does not start."""
        if self._executor is not None and self._executor.outdated(compiled=_compiled()):
            self.renew()
        if self._executor is None:
            self._executor = Executor(WARM, self._enclosure() if self._closed else None, _compiled())
        return self._executor

    def done(self) -> None:
        """Count a task; the executor is replaced after many."""
        if self._executor is not None:
            self._executor.served += 1
            if self._executor.served >= MOST_SERVED:
                self.renew()

    def renew(self) -> None:
        """End the executor, whatever it does."""
        if self._executor is not None:
            self._executor.close()
        self._executor = None

    def written(self, files: Mapping[str, str]) -> Path:
        """A fresh folder with these files, whose names are known to be paths within it."""
        self._task += 1
        folder = self.folder / f"sources-{self._task}" / UNNAMED
        shutil.rmtree(self.folder / f"sources-{self._task - 1}", ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", errors="surrogatepass")
        return folder

    def close(self) -> None:
        """End the executor, and remove the folder."""
        self.renew()
        self._scratch.close()

    def _enclosure(self) -> dict[str, object]:
        inside, own, writable = self.folder / "dev", self.folder / "own", cache_folders(compiler_caches())
        for folder in (inside, own):
            folder.mkdir(exist_ok=True)
        return {
            "scratch": str(inside),
            "megabytes": STORE_MB + self._memory_mb,
            "writable": writable,
            "hidden": self._hidden,
            "shown": [*_programs(), *writable, str(_machine_code()), str(self.folder), *self._readable],
            "own": str(own),
        }


def _programs() -> list[str]:
    """Where the interpreter, its packages, this one and other programs lie; no home, and nothing that holds one."""
    ours = HOME / "kernel_assay"
    named = (value for name, value in os.environ.items() if _OF_PROGRAMS.fullmatch(name))
    paths = {sys.prefix, sys.base_prefix, *sys.path, *(one for value in named for one in value.split(os.pathsep))}
    links = [one.resolve() for one in ours.iterdir() if one.is_symlink()]  # in a checkout, which has more than packages
    homes = Path.home(), Path.cwd(), *([HOME] if links else [])  # python -m puts in where it was begun
    outside = {one for home in homes for one in (home, *home.parents)}
    found = [path for path in map(Path, paths) if path.is_absolute() and path.resolve() not in outside]
    found = [part for path in found for part in (_parts(path) if (path / ".git").exists() else [path])]
    return sorted(map(str, (*found, ours, *links)))


def _parts(checkout: Path) -> list[Path]:
    """What lies in a checkout that is imported from; not what git keeps there."""
    return [part for part in checkout.iterdir() if not part.name.startswith(".")]


def _compiled() -> Path | None:
    """The judge's machine code, if all of it is there."""
    folder = _machine_code()
    return folder if next(folder.rglob("*.compiled"), None) else None


@cache
def _machine_code() -> Path:
    """Its folder: another one for another source, or another numba, of which nothing is of use."""
    found = find_spec("kernel_assay.oracles.judging.measure_numba")
    assert found is not None
    assert found.origin is not None
    said = Path(found.origin).stat().st_mtime_ns, _numba_version()
    return cache_home() / COMPILED / hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _numba_version() -> str:
    """The version of numba; empty without it."""
    try:
        return version("numba")
    except PackageNotFoundError:
        return ""
