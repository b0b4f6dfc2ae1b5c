"""Load every subject once, several at a time, to see which of them can be called, and how."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import cast

from pydantic import ValidationError

from kernel_assay.corpus.model.campaign import Call
from kernel_assay.corpus.process.channel import frame
from kernel_assay.corpus.process.import_limit import NOTICE_SECONDS, import_seconds, say_waiting
from kernel_assay.kernels.sandbox.patience import PAUSE_SECONDS, Clock
from kernel_assay.kernels.sandbox.worker_pool import Handle, WorkerPool

BEYOND_SECONDS = 20.0
"""What loading a subject may take."""
EACH = 16
"""Subjects to a worker: for fewer, none is started beside the first."""
MOST = 8
"""Workers, at most: on a GPU each takes half a gigabyte of its memory."""

ReadyBy = Callable[[str], float]
"""Key of a subject -> when it must have been loaded, by `time.monotonic`."""


class Said(Call):
    """A worker's answer (kernels/worker/worker.py)."""

    error: str
    """Why it cannot be called; empty: it can."""
    modules: tuple[str, ...] = ()
    """Those of this project's upper layers in the worker."""


@dataclass
class Probed:
    """Results of a probe, by subject key."""

    said: dict[str, Said] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    """What it did to its worker instead."""
    unready: set[str] = field(default_factory=set)
    """Those there was no time for."""


class Probing:
    """Workers that load subjects: the first of them takes these in their order, others from the end."""

    def __init__(
        self, keys: Sequence[str], first: Handle, pool: WorkerPool, make: Callable[[], Handle], ready_by: ReadyBy
    ) -> None:
        """make: a worker that knows its subjects."""
        self.first = first
        """The worker that goes on to run subjects, or one in its place if it has died."""
        self.found = Probed()
        self._pool, self._make, self._ready_by = pool, make, ready_by
        self._waiting = deque(keys)
        helpers = max(0, min(MOST, os.cpu_count() or 1, len(keys) // EACH) - 1)
        self._idle = [*(make() for _ in range(helpers)), first]
        self._busy: dict[Handle, tuple[str, float]] = {}
        """What each worker loads, and until when it may, by the clock."""
        self._told = set[str]()
        """Those that a person knows to be waited for."""
        self._clock, self._most = Clock(), import_seconds() + BEYOND_SECONDS

    def run(self) -> Probed:
        """Load them all, as far as there is time."""
        while self._waiting or self._busy:
            self._ask_the_idle()
            handles = {handle.channel.fileno(): handle for handle in self._busy}
            for fileno in wait(list(handles), PAUSE_SECONDS):
                self._hear(handles[cast("int", fileno)])
            self._end_the_late()
        for handle in self._idle:
            if handle is not self.first:
                self._pool.discard(handle, dead=False)
        return self.found

    def _ask_the_idle(self) -> None:
        while self._waiting and self._idle:
            handle = self._idle.pop()
            key = self._waiting.popleft() if handle is self.first else self._waiting.pop()
            if time.monotonic() >= self._ready_by(key):
                self.found.unready.add(key)
                self._idle.append(handle)
                continue
            self._busy[handle] = key, self._clock() + self._most
            handle.loaded.add(key)
            with suppress(OSError):  # it is dead, as will be heard
                handle.channel.send(frame({"probe": key}, []))

    def _hear(self, handle: Handle) -> None:
        key, until = self._busy.pop(handle)
        try:
            if not handle.channel.ready(0):
                self._busy[handle] = key, until
                return
            said = Said.model_validate(handle.channel.receive()[0])
        except (EOFError, OSError, ValidationError):
            ending = self._pool.ending(handle)
            self._replace(handle)
            self.found.wrong[key] = f"kills the process when it is loaded ({ending.describe()})"
            return
        self._idle.append(handle)
        self.found.said[key] = said

    def _end_the_late(self) -> None:
        now, here = time.monotonic(), self._clock()
        for handle, (key, until) in list(self._busy.items()):
            if here < until and now < self._ready_by(key):
                if key not in self._told and here >= until - self._most + NOTICE_SECONDS:
                    self._told.add(key)
                    say_waiting(key, import_seconds())
                continue
            del self._busy[handle]
            self._pool.kill(handle)
            self._replace(handle)
            if here < until:
                self.found.unready.add(key)
            else:
                self.found.wrong[key] = f"does not load within {self._most:g} s"

    def _replace(self, dead: Handle) -> None:
        self._pool.discard(dead, dead=True)
        made = self._make()
        self._idle.append(made)
        if dead is self.first:
            self.first = made
