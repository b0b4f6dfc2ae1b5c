"""The supervisor's side of the zygote: handles of workers, and how each of them ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic_core import from_json, to_json

from corpus.errors import InternalError
from corpus.scratch import Scratch
from kernels.mps import terminate
from kernels.processes import kill_group
from kernels.protocol import CHANNEL_LOST, FORK, GPU_LOST, IDLE, JOURNAL, Channel

ROOT = Path(__file__).resolve().parent.parent
_BOOT = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from kernels.zygote import main; main()"
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_START_SECONDS = 120.0
_EXIT_SECONDS = 5.0
_CLOSE_SECONDS = 1.5
"""In which a zygote ends by itself, unless it is still importing; whoever waits has said that it is over."""


@dataclass(slots=True)
class Ending:
    """How a process ended: its exit code (negative: the signal) and its last words."""

    code: int
    tail: str

    def describe(self) -> str:
        """In words."""
        if self.code == CHANNEL_LOST:
            return "it closed the channel to its supervisor, or wrote into it"
        if self.code == GPU_LOST:
            return self.tail.strip().rpartition("\n")[2]
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"the process exited with {self.code}"


_GPU_MB = 64 << 10
"""What a context on a GPU maps of the host's memory, at most; most of it is never touched."""


@dataclass(slots=True, eq=False)
class Handle:
    """One worker process."""

    channel: Channel
    journal: int
    pid: int = 0
    served: int = 0
    """Tasks given to it."""
    lost: str = ""
    """Why nothing runs on the GPU any more in it, if it has said so; it is about to end."""
    warm: bool = False
    """Whether it has touched what a task touches, a GPU among it, before it is needed."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """What has made it a client of a service that shares the GPU (kernels/mps.py); empty: it takes turns."""

    def close(self) -> None:
        """Hang up, and let go of the journal."""
        self.channel.close()
        os.close(self.journal)

    def running(self) -> tuple[int, int, int]:
        """(task, position, started at CLOCK_MONOTONIC ns) of the run in progress; IDLE when there is none."""
        raw = os.pread(self.journal, JOURNAL.size, 0)
        if len(raw) < JOURNAL.size:  # a subject has cut it
            return IDLE, IDLE, time.monotonic_ns()
        task, position, since = JOURNAL.unpack(raw)
        return task, position, since


class Nursery:
    """Starts the zygote, asks it for workers, learns how they ended."""

    def __init__(
        self, backends: tuple[str, ...], memory_mb: int, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """environment: variables that the workers get besides this process's."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._scratch = Scratch()
        settings = {
            "control": theirs.fileno(),
            "memory_mb": memory_mb + (_GPU_MB if any(b.endswith(("@cuda", "cupy")) for b in backends) else 0),
            "backends": backends,
            "scratch": str(self._scratch.path),
        }
        command = [sys.executable, "-c", _BOOT, str(ROOT), to_json(settings).decode()]
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_THREADS, **environment, "PYTHONUNBUFFERED": "1"},  # its last words must not be lost
            start_new_session=True,  # Ctrl-C is for the supervisor alone
        )
        theirs.close()
        self._control = ours
        self._unclaimed: list[Handle] = []
        self._ended: dict[int, Ending] = {}

    def branch(self, environment: dict[str, str]) -> Branch:
        """A nursery for another process, without importing anything again; its workers get these variables, too."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(self._control, [to_json(environment)], [theirs.fileno()])
        except OSError as error:
            raise InternalError(f"the zygote is gone: {error}") from error
        theirs.close()
        return Branch(ours)

    def fileno(self) -> int:
        """Of the socket that leads to the zygote."""
        return self._control.fileno()

    def spawn(self) -> Handle:
        """Ask for a worker; it is usable at once, its pid is known a little later."""
        ours, theirs = socket.socketpair()
        journal = os.memfd_create("journal")
        os.pwrite(journal, JOURNAL.pack(IDLE, IDLE, time.monotonic_ns()), 0)
        try:
            socket.send_fds(self._control, [FORK], [theirs.fileno(), journal])
        except OSError as error:
            raise InternalError(f"the zygote is gone: {error}") from error
        theirs.close()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            ours.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        handle = Handle(Channel(ours), journal)
        self._unclaimed.append(handle)
        return handle

    def ending(self, handle: Handle, seconds: float = _EXIT_SECONDS) -> Ending:
        """How a worker ended; one that does not end in time is killed."""
        pid = self._pid(handle)
        deadline = time.monotonic() + (seconds if handle.lost else min(seconds, 0.25))
        while pid not in self._ended and time.monotonic() < deadline:
            self._hear(deadline - time.monotonic())
        if pid not in self._ended:  # it closed its end and lives on
            self._kill(handle)
            self._wait_for(pid)
            return Ending(CHANNEL_LOST, self._ended.pop(pid).tail)
        kill_group(pid)
        return self._ended.pop(pid)

    def kill(self, handle: Handle) -> Ending:
        """SIGKILL, at once, for the worker and whatever it started."""
        pid = self._pid(handle)
        self._kill(handle)
        self._wait_for(pid)
        return self._ended.pop(pid)

    def discard(self, handle: Handle, *, dead: bool) -> None:
        """Let go of a worker that nobody needs any more; one that is not dead is killed, but not waited for.

        One that shares its GPU, and is not busy, ends by itself when the channel is closed.
        """
        if not dead and not handle.shared:
            self._kill(handle)
        handle.close()

    def close(self) -> None:
        """End the zygote; its children end with it."""
        self._control.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._scratch.close()

    def _pid(self, handle: Handle) -> int:
        deadline = time.monotonic() + _START_SECONDS
        while not handle.pid:
            self._hear(deadline - time.monotonic())
        return handle.pid

    def _kill(self, handle: Handle) -> None:
        pid = self._pid(handle)
        self._hear(0)
        if pid not in self._ended:
            if handle.shared:
                terminate(handle.shared, pid)
            kill_group(pid)

    def _wait_for(self, pid: int) -> None:
        deadline = time.monotonic() + _EXIT_SECONDS
        while pid not in self._ended:
            self._hear(deadline - time.monotonic())

    def _hear(self, seconds: float) -> None:
        """Take in what the zygote says within so many seconds (0: what it has said already)."""
        if not select.select([self._control], [], [], max(seconds, 0))[0]:
            if seconds < 0:
                raise InternalError("the zygote does not answer")
            return
        try:
            message = self._control.recv(1 << 16)
        except ConnectionResetError:
            message = b""
        if not message:
            raise InternalError("the zygote died; its last words are on stderr")
        said = from_json(message)
        if "forked" in said:
            self._unclaimed.pop(0).pid = said["forked"]
        else:
            self._ended[said["ended"]] = Ending(said["code"], said["tail"])


class Branch(Nursery):
    """A nursery whose zygote was forked by another one's, and ends with that one at the latest."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._unclaimed = []
        self._ended = {}

    def let_go(self) -> None:
        """In the process that has made it for another."""
        self._control.close()

    def close(self) -> None:
        """End the zygote; its children end with it."""
        self._control.close()
