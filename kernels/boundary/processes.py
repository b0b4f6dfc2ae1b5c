"""End processes, on either side of the zygote."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_PAUSE_SECONDS = 0.002


def kill_group(pid: int) -> None:
    """SIGKILL for a worker and whatever it has started; also for one that has no group of its own yet.

    Nothing for a worker that was lost before its pid was known: 0 would be this process and its own group.
    """
    if pid <= 0:
        return
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def end_strays(known: Collection[int], seconds: float = 1.0) -> None:
    """End the children of this process that it does not know: what dead children have left, and what those leave.

    Not for longer than so many seconds: one that forks for ever is ended with the next that are.
    """
    deadline = time.monotonic() + seconds
    while (strays := children() - set(known)) and time.monotonic() < deadline:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = [os.waitpid(pid, os.WNOHANG)[0] for pid in strays]
        if not any(ended):
            time.sleep(_PAUSE_SECONDS)


def children() -> set[int]:
    """Children of this process; zombies too."""
    me = os.getpid()
    try:
        return set(map(int, Path(f"/proc/{me}/task/{me}/children").read_text("ascii").split()))
    except FileNotFoundError:  # a kernel without checkpoints has no such file
        return {pid for pid in processes() if status_of(pid).parent == me}


def processes() -> list[int]:
    """All of this machine that can be seen."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


class ProcessStatus(NamedTuple):
    """The kernel's word on a process; zeros of one that has gone."""

    parent: int
    session: int
    ended: bool
    """Whether it only waits for its parent to take note."""


def status_of(pid: int) -> ProcessStatus:
    """Read the status of a process that may be gone already."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ProcessStatus(0, 0, ended=True)
    return ProcessStatus(int(fields[1]), int(fields[3]), fields[0] in {"Z", "X"})
