"""The process that workers come from, started while a reference is loaded: each imports torch, which takes a second."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.settings import RunSettings
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.sandbox.worker_pool import WorkerPool, pool_ahead

_ANY = "op"
"""Stands for the op of a kernel whose reference nobody has loaded."""


class HeadStart:
    """A pool of workers that somebody takes, or that is closed in the end. Use it as a context manager."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool

    def __enter__(self) -> Self:
        """The head start itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close what nobody has taken."""
        self.take(())

    def take(self, subjects: Sequence[Subject]) -> WorkerPool | None:
        """The pool, if it is one for these subjects; it is the caller's from then on. Another one is closed."""
        pool, self._pool = self._pool, None
        fits = not any(s.python for s in subjects)
        if pool is None or (fits and pool.backends == tuple(sorted({s.loader for s in subjects}))):
            return pool
        pool.close()
        return None


def head_start(settings: RunSettings, guess: str = "") -> HeadStart:
    """Start what the kernels of these settings will run in, where files tell what that is and a reference is loaded.

    guess: the loader of kernels whose files are not written yet.
    """
    if not settings.references or settings.device != "cpu" or settings.python or settings.peers:
        return HeadStart()
    with suppress(UsageError):  # it is said when the run begins
        launch = "\n".join(settings.launch)
        loaders = {guess or user_subject(place, (_ANY,), launch).loader for place in settings.subjects}
        if loaders and not any(loader_of(one).unavailable() for one in loaders):
            return HeadStart(pool_ahead(loaders, settings.limits.memory_mb, closed=settings.limits.closed))
    return HeadStart()
