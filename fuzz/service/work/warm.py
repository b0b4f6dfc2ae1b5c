"""Processes kept warm between tasks, which have imported the libraries of kernels, and have run none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.import_limit import SECONDS_VARIABLE
from kernel_assay.fuzz.checking.head_start import HeadStart
from kernel_assay.fuzz.checking.user_references import ReferenceProcess
from kernel_assay.fuzz.settings import SandboxLimits
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.environment import environment
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool, pool_ahead
from kernel_assay.oracles.catalog import forget_contracts, load_contracts
from kernel_assay.oracles.judging.measure import engine
from kernel_assay.oracles.judging.precompile import compile_beside

_Kind = tuple[tuple[str, ...], int, bool]
MOST_POOLS = 4
"""Kinds of pools that are kept; each has imported what its kernels need."""


class WarmPools:
    """Pools of workers by what they have imported; each task gets a fork of one, in which nothing has run before."""

    def __init__(self, loaders: Sequence[str]) -> None:
        """loaders: those of pools that are started at once."""
        self._pools: dict[_Kind, WorkerPool] = {}
        load_contracts()
        engine()
        environment()
        compile_beside()
        for loader in loaders:
            self._pool(((loader,), SandboxLimits().memory_mb, True))

    def __enter__(self) -> Self:
        """The pools themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End them."""
        for pool in self._pools.values():
            pool.close()

    def ahead(self, limits: SandboxLimits) -> HeadStart:
        """Make a head start for a task."""
        return _Warm(self, limits)

    def branch(self, subjects: Sequence[Subject], limits: SandboxLimits) -> WorkerPool | None:
        """A new fork of the pool that these subjects can have; None: they need another kind of process."""
        if not subjects or any(s.python or s.device != "cpu" for s in subjects):
            return None
        loaders = tuple(sorted({s.loader for s in subjects}))
        if any(loader_of(one).unavailable() for one in loaders):
            return None
        kind = loaders, limits.memory_mb, limits.closed
        own = {SECONDS_VARIABLE: os.environ.get(SECONDS_VARIABLE, "")}  # of this task
        try:
            return self._pool(kind).branch(own)
        except InternalError:  # its process is gone
            with suppress(OSError):
                self._pools.pop(kind).close()
            return self._pool(kind).branch(own)

    def _pool(self, kind: _Kind) -> WorkerPool:
        pool = self._pools.pop(kind, None)
        if pool is None:
            loaders, memory_mb, closed = kind
            pool = pool_ahead(loaders, memory_mb, closed=closed)
        self._pools[kind] = pool  # the one that was used last is the last
        while len(self._pools) > MOST_POOLS:
            self._pools.pop(next(iter(self._pools))).close()
        return pool

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Lend a folder for a task's own store; what the task has made known is forgotten with it."""
        folder = Path(tempfile.mkdtemp(prefix="task-"))
        try:
            yield folder
        finally:
            for contract in load_contracts().values():
                if isinstance(contract.elsewhere, ReferenceProcess):
                    contract.elsewhere.close()
            forget_contracts()
            shutil.rmtree(folder, ignore_errors=True)


class _Warm(HeadStart):
    """Gives pools as often as it is asked; they are closed by whoever takes them."""

    def __init__(self, pools: WarmPools, limits: SandboxLimits) -> None:
        super().__init__()
        self._pools, self._limits = pools, limits

    def take(self, subjects: Sequence[Subject]) -> WorkerPool | None:
        """A pool for these subjects."""
        return self._pools.branch(subjects, self._limits)
