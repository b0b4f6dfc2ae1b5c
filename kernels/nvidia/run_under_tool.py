"""A subject run under a tool of NVIDIA's: in a session of its own, for a time, and ended with all it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.process.child import start
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.kernels.boundary.processes import processes, status_of
from kernel_assay.kernels.nvidia.run_once import Order

_TAIL = 1 << 16
"""Bytes of what it printed that are read, from the end."""
_MOST_LOG = 16 << 20
"""Bytes of a tool's log that are read, from the beginning."""
_EXIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """The words of a tool and of the program under it."""

    code: int | None
    """Exit code; None: it was ended because its time was up."""
    out: str
    err: str
    log: str
    """The file called `log` in its folder; empty if there is none."""


def watch(
    tool: Sequence[str],
    order: Order,
    *,
    seconds: float,
    env: Mapping[str, str],
    beside: Callable[[], object] = lambda: None,
    program: Sequence[str] = ("kernels.nvidia.run_once",),
) -> Watched:
    """Run an order (kernels/nvidia/run_once.py) under a tool for at most so many seconds.

    tool: its command line up to the program, run in a folder that is removed afterwards; it writes `log` there.
    env: what differs from this process's environment. beside: called again and again meanwhile. program: the module
    that runs the order, and what it is told behind that.
    """
    with closing(Scratch("watched-")) as scratch:
        folder = scratch.path
        order.write(folder / "order.json")
        code = _run(tool, program, folder, env, seconds, beside)
        out, err = (_end(folder / stream, _TAIL) for stream in ("out", "err"))
        log = folder / "log"
        return Watched(code, out, err, _beginning(log, _MOST_LOG) if log.is_file() else "")


def _run(
    tool: Sequence[str],
    program: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    seconds: float,
    beside: Callable[[], object],
) -> int | None:
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        words = program[0], str(folder / "order.json"), *program[1:]
        process = start(*words, under=tool, folder=folder, environment=env, out=out, err=err)
        try:
            return _code(process, seconds, beside)
        finally:
            end_session(process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_SECONDS)


def _code(process: subprocess.Popen[bytes], seconds: float, beside: Callable[[], object]) -> int | None:
    """The exit code of a process; None if its time is up."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, _PAUSE_SECONDS))
        beside()
    return None


def end_session(leader: int) -> None:
    """SIGKILL for every process of a session: tools give those that they start groups of their own."""
    deadline = time.monotonic() + _EXIT_SECONDS  # one that waits for the driver dies when the driver lets it
    while time.monotonic() < deadline:
        members = [pid for pid in processes() if status_of(pid)[1:] == (leader, False)]
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _end(path: Path, most: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode("utf-8", "replace")


def _beginning(path: Path, most: int) -> str:
    with path.open("rb") as file:
        return file.read(most).decode("utf-8", "replace")
