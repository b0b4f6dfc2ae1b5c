"""Zygotes that go on to the next test: to start one costs a third of a second, and two seconds with torch.

A zygote runs no subject, so the next sandbox with the same backends, memory and environment may have it; its workers
are ended with the sandbox that asked for them, as always. Tests of the processes themselves have zygotes of their own.
"""

import os
import re
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock

import pytest

from kernel_assay.corpus.errors import InternalError
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.toolchain import cache_folder
from kernel_assay.kernels.sandbox import worker_pool
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool

WAITING = []
"""Nurseries that have left their zygotes, the last one at the end."""
LOCK = Lock()
STARTER = ThreadPoolExecutor(1)
"""A zygote dies with the thread that has started it, so none of a test may."""
PYTESTS = re.compile("PYTEST_|HOME$|USERPROFILE$|PY_COLORS$")
"""Variables that pytest and its `pytester` set anew for each test."""


class SharedNursery(WorkerPool):
    """One whose zygote outlives it."""

    most = 4
    """That may wait, in each process that runs tests; the one that has waited longest ends first."""

    def __init__(self, backends, memory_mb, environment=None, why_open="", python=""):
        environ = sorted(item for item in (os.environ | (environment or {})).items() if not PYTESTS.match(item[0]))
        self._kind, self._made = (backends, memory_mb, environ, why_open, python), []
        before = taken(self._kind)
        if before is None:
            words = (backends, memory_mb, environment or {}, why_open, python)
            STARTER.submit(super().__init__, *words).result()
        else:
            vars(self).update(vars(before), _made=[], _unclaimed=[], _ended={})

    def spawn(self):
        self._made.append(super().spawn())
        return self._made[-1]

    def ending(self, handle):
        self._made = [other for other in self._made if other is not handle]
        return super().ending(handle)

    def kill(self, handle):
        self._made = [other for other in self._made if other is not handle]
        return super().kill(handle)

    def discard(self, handle, *, dead):
        super().discard(handle, dead=dead)
        if handle.name:  # its end is not told any more
            self._made = [other for other in self._made if other is not handle]

    def close(self):
        if self._process.poll() is not None or not self._without_workers():
            super().close()
            return
        for left in Path(self._scratch).iterdir():  # by a subject; the folder itself is where the next workers begin
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        with LOCK:
            WAITING.append(self)
            surplus = WAITING[: max(0, len(WAITING) - self.most)]
            del WAITING[: len(surplus)]
        for pool in surplus:
            pool.end()

    def end(self):
        super().close()

    def _without_workers(self):
        """End those that are left; whether the zygote has reaped every one of them."""
        try:
            for handle in self._made:
                self._kill(handle)
            for handle in self._made:
                self._wait_for(handle)
        except InternalError:
            return False
        return True


def taken(kind):
    """A pool of this kind that waits, and does so no longer."""
    with LOCK:
        found = next((n for n in reversed(WAITING) if n._kind == kind and n._process.poll() is None), None)
        if found is not None:
            WAITING.remove(found)
        return found


os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")  # trio's imports pytest, in each of hundreds of processes


@pytest.fixture(scope="session", autouse=True)
def shared_zygotes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "WorkerPool", SharedNursery)
        patch.setenv("XDG_CACHE_HOME", str(cache_folder().parents[1]))  # also where a test has a home of its own
        yield
    SharedNursery.most = 0
    while WAITING:
        WAITING.pop().end()


@pytest.fixture(scope="session")
def emulator():
    """Give a new cache folder what the emulator itself needs, which takes ten seconds to build."""
    cache = cache_folder()

    def give(home):
        if toolchain.missing():
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
            headers = [toolchain.headers(mode).parent for mode in toolchain.Mode]
            objects = toolchain._objects(("ptx", "runtime", "program"), ())
            made = [toolchain.runtime(), *map(Path, objects), *headers]
        (home / "kernel-assay" / "cuda").mkdir(parents=True, exist_ok=True)
        for place in made:
            with suppress(FileExistsError):  # another process of the tests was faster
                (home / "kernel-assay" / "cuda" / place.name).symlink_to(place)

    return give


@pytest.fixture(scope="module")
def own_zygotes(shared_zygotes):
    """For tests of the processes themselves: they begin and end with the sandbox."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "WorkerPool", WorkerPool)
        yield


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A folder that kernels can write to, as compilers do to their caches: for what they are to tell a test."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def meter():
    """A class whose objects count the bytes of all tensors of torch that are made within them, and live."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Meter(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.now, self.peak, self.known = 0, 0, set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and (storage := made.untyped_storage())._cdata not in self.known:
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.forget, storage._cdata, storage.nbytes())
            return made

        def forget(self, key, size):
            self.known.discard(key)
            self.now -= size

    return Meter
