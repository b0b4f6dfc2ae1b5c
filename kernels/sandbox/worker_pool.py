"""The supervisor's side of the zygote: handles of workers, and how each of them ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic_core import from_json, to_json

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.inputs.gradients import NEEDED
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Channel, frame
from kernel_assay.corpus.process.child import handed, start
from kernel_assay.corpus.process.interpreter import interpreter
from kernel_assay.corpus.process.scratch_folders import Scratch
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.cuda_support.driver import GPU_LOST
from kernel_assay.kernels.backends.support.rearranged import gradient_of
from kernel_assay.kernels.backends.support.walls import Touch, order_of, touched
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.boundary.processes import kill_group
from kernel_assay.kernels.boundary.protocol import (
    CHANNEL_LOST,
    FAULT,
    FORK,
    IDLE,
    JOURNAL,
    STACK_AT,
    STACK_SIGNAL,
    WORKER_FAILED,
    ZYGOTE_LOST,
    Task,
)
from kernel_assay.kernels.sandbox.availability import must_be_available
from kernel_assay.kernels.sandbox.closing import ASKED, enclosure_of
from kernel_assay.kernels.sandbox.compiler_caches import cache_home, compiler_caches
from kernel_assay.kernels.sandbox.mps import terminate
from kernel_assay.kernels.sandbox.patience import PAUSE_SECONDS, Clock

ZYGOTE = "kernels.worker.zygote"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables with which the libraries of linear algebra start no thread: a process with some cannot be closed in."""
MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
"""A variable with which the C library keeps no freed memory aside: all of it is filled (support/free_memory.py)."""
SPARE_AFTER = 64
"""Tasks of a first worker after which a spare waits beside it, which short runs seldom need; on a GPU, none."""
MAX_WARM = 8
"""Subjects a first spare loads before it is needed."""
_START_SECONDS = 120.0
_EXIT_SECONDS = 5.0
_CLOSE_SECONDS = 1.5
_MOST_SILENT = 3
"""Zygotes in a row that end without a word since one has spoken, before it is said to be our own affair."""
"""In which a zygote ends by itself, unless it is still importing; whoever waits has said that it is over."""
_MOST_STACK = 1 << 14
"""Bytes of a stack that are read."""
HISTORY = 1024
"""Tasks of a worker that are remembered: what it keeps between two calls may be why the next one fails."""


@dataclass(slots=True)
class Ending:
    """The end of a process: its exit code (negative: the signal) and its last words."""

    code: int
    tail: str
    touch: Touch | None = None
    """What it was killed for, where that was seen (kernels/backends/support/walls.py)."""
    aimless: bool = False
    """Whether it crashed while inputs lay between walls, but left none: it may want them where vectors begin."""

    def describe(self) -> str:
        """Words for it."""
        last = self.tail.strip().rpartition("\n")[2]
        words = {
            CHANNEL_LOST: "it closed the channel to its supervisor, or wrote into it",
            WORKER_FAILED: f"while it ran, the worker's own code failed, or was made to say so: {last}",
            GPU_LOST: last,
            ZYGOTE_LOST: "it ended or stopped the process that starts all others",
        }
        if self.touch is not None:
            return self.touch.describe()
        if self.code in words:
            return words[self.code]
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"the process exited with {self.code}"


_FRAME = 1 << 24
"""Bytes of a message that are not a worker's outputs, at most."""
_GPU_MB = 64 << 10
"""What a context on a GPU maps of the host's memory, at most; most of it is never touched."""


@dataclass(slots=True, eq=False)
class Handle:
    """One worker process."""

    channel: Channel
    journal: int
    pid: int = 0
    """As this process knows it; below 0 if it had ended before that was known."""
    name: int = 0
    """The pid by which its zygote knows it."""
    zygote: int = 0
    """Which of the pool's zygotes has forked it."""
    served: int = 0
    """Tasks given to it."""
    warmed: set[str] = field(default_factory=set)
    """Subjects that have come back from a call in it."""
    history: deque[Task] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """The latest of them, in their order."""
    lost: str = ""
    """Why nothing runs on the GPU any more in it, if it has said so; it is about to end."""
    failed: str = ""
    """Traceback of what failed in it, if it has said that this was its own code; it is about to end."""
    stack: str = ""
    """Where it was when that was last asked for."""
    due: tuple[str, ...] = ()
    """Subjects that it is to load before it is needed, once the worker that is needed now has loaded its own."""
    warm: bool = False
    """Whether it has touched what a task touches, a GPU among it, before it is needed."""
    loaded: set[str] = field(default_factory=set)
    """Subjects whose files it has executed, or was told to."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """What has made it a client of a service that shares the GPU (kernels/sandbox/mps.py); empty: it takes turns."""

    def close(self) -> None:
        """Hang up, and let go of the journal."""
        self.channel.close()
        if self.journal >= 0:  # it may be closed twice: when its zygote is lost, and with all others
            os.close(self.journal)
            self.journal = -1

    def warm_up(self) -> None:
        """Have it load what it is to load, unless it has been told."""
        if self.due:
            self.warm = True
            self.loaded.update(self.due)
            with contextlib.suppress(OSError):  # it is dead, which shows when it is needed
                self.channel.send(frame({"warm": self.due}, []))
            self.due = ()

    def is_alone_with(self, keys: Collection[str]) -> bool:
        """Whether it has run nothing, and loaded nothing but these subjects: else others may have changed it."""
        return not (self.served or self.shared) and self.loaded <= set(keys)

    def running(self) -> tuple[int, int, int]:
        """(task, position, started at CLOCK_MONOTONIC ns) of the run in progress; IDLE when there is none."""
        raw = os.pread(self.journal, JOURNAL.size, 0)
        if len(raw) < JOURNAL.size:  # a subject has cut it
            return IDLE, IDLE, time.monotonic_ns()
        task, position, since = JOURNAL.unpack(raw)
        return task, position, since

    def is_between_walls(self) -> bool:
        """Whether inputs lay there when it ended."""
        raw = os.pread(self.journal, FAULT.size, JOURNAL.size)
        return len(raw) == FAULT.size and bool(FAULT.unpack(raw)[0])

    def touched(self, case: Case) -> Touch | None:
        """The input that it was to read, or beside which, when it was killed for that; None: none."""
        raw = os.pread(self.journal, FAULT.size, JOURNAL.size)
        base, address, error = FAULT.unpack(raw) if len(raw) == FAULT.size else (0, 0, 0)
        return touched(case.tensors, order_of(case), address - base, error) if base and address else None


class WorkerPool:
    """Starts the zygote, asks it for workers, learns how they ended."""

    def __init__(
        self,
        backends: tuple[str, ...],
        memory_mb: int,
        environment: Mapping[str, str] = MappingProxyType({}),
        why_open: str = "",
        python: str = "",
    ) -> None:
        """environment: variables that the workers get besides this process's; why_open: why they are not closed in.

        python: the interpreter that they run in; empty: this one. Raises UsageError if that is gone.
        """
        self.backends = backends
        """Loaders whose libraries its workers have imported."""
        self._python = python
        self._scratch = Scratch()
        caches = {**compiler_caches(), "XDG_CACHE_HOME": str(cache_home())}  # the same, where homes are read-only
        self._environment = {**ONE_THREAD, **MALLOC, **caches, **environment}
        self.on_gpu = any(b.endswith("@cuda") or loader_of(b).gpu_only for b in backends)
        self._most = (memory_mb << 20) + _FRAME
        self._settings = {
            "memory_mb": memory_mb + (_GPU_MB if self.on_gpu else 0),
            "backends": backends,
            "enclosure": enclosure_of(self._scratch.path, memory_mb, self._environment),
            "open": why_open,
        }
        self._why_open: str | None = None
        self._zygotes = self._silent = 0
        self._start()

    def _start(self) -> None:
        """Start a zygote."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = handed({**self._settings, "control": theirs.fileno()})
        environment = {**self._environment, "PYTHONUNBUFFERED": "1"}  # its last words must not be lost
        lent = interpreter(self._python).lent if self._python else {}
        self._process: subprocess.Popen[bytes] | None = start(
            ZYGOTE,
            str(settings),
            fds=(theirs.fileno(), settings),
            environment=environment,
            python=self._python,
            lent=lent,
        )
        theirs.close()
        os.close(settings)
        self._listen_to(ours)

    def _listen_to(self, control: socket.socket) -> None:
        """Ask this zygote for workers from now on."""
        self._control, self._clock = control, Clock()
        self._zygotes += 1
        self._unclaimed: list[Handle] = []
        self._ended: dict[int, Ending] = {}
        self._forgotten: set[int] = set()
        """Names of workers whose end nobody asks for."""

    def branch(self, environment: dict[str, str]) -> ForkedPool:
        """A pool for another process, without importing anything again; its workers get these variables, too."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(self._control, [to_json(environment)], [theirs.fileno()])
        except OSError as error:
            raise InternalError(f"the zygote is gone: {error}") from error
        theirs.close()
        return ForkedPool(ours, self, {**self._environment, **environment})

    def import_first(self, module: str) -> None:
        """Let workers find a module imported that most of them will need."""
        with contextlib.suppress(OSError):  # the zygote is gone, as the next worker is told
            socket.send_fds(self._control, [to_json([module])], [])

    @property
    def why_open(self) -> str:
        """Why workers are not closed in, as the zygote says; empty: they are, or nobody knows yet."""
        deadline = self._clock() + _START_SECONDS
        while self._why_open is None and (left := deadline - self._clock()) > 0:
            self._hear(left)
        return self._why_open or ""

    def fileno(self) -> int:
        """Descriptor of the socket that leads to the zygote."""
        return self._control.fileno()

    def spawn(self) -> Handle:
        """Ask for a worker; it is usable at once, its pid is known a little later."""
        ours, theirs = socket.socketpair()
        journal = os.memfd_create("journal")
        os.ftruncate(journal, STACK_AT)
        os.pwrite(journal, JOURNAL.pack(IDLE, IDLE, time.monotonic_ns()), 0)
        try:
            socket.send_fds(self._control, [FORK], [theirs.fileno(), journal])
        except OSError:
            self._begin_anew()
            socket.send_fds(self._control, [FORK], [theirs.fileno(), journal])
        theirs.close()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            ours.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        handle = Handle(Channel(ours, self._most), journal, zygote=self._zygotes)
        self._unclaimed.append(handle)
        return handle

    def ending(self, handle: Handle, seconds: float = _EXIT_SECONDS) -> Ending:
        """Wait for a worker's end; one that does not end in time is killed."""
        pid = self.pid_of(handle)
        deadline = self._clock() + (seconds if handle.lost else min(seconds, 0.25))
        while not self._has_ended(handle) and (left := deadline - self._clock()) > 0:
            self._hear(left)
        if not self._has_ended(handle):  # it closed its end and lives on
            return Ending(CHANNEL_LOST, self.kill(handle).tail)
        kill_group(pid)
        return self._ended.pop(handle.name, _UNKNOWN)

    def kill(self, handle: Handle) -> Ending:
        """SIGKILL, at once, for the worker and whatever it started."""
        self._kill(handle)
        self._wait_for(handle)
        return self._ended.pop(handle.name, _UNKNOWN)

    def lost(self, handle: Handle) -> bool:
        """Whether a worker's zygote is gone, and with it the worker."""
        return handle.zygote != self._zygotes

    def loses(self, handle: Handle) -> bool:
        """The same, where that may have happened just now."""
        deadline = self._clock() + PAUSE_SECONDS
        while not self.lost(handle) and (left := deadline - self._clock()) > 0:
            self._hear(left)
        return self.lost(handle)

    def stack(self, handle: Handle) -> str:
        """Where a worker is, as Python's faulthandler shows it, the innermost call first; empty if it does not say."""
        pid = self.pid_of(handle)
        self._hear(0)
        if pid <= 0 or self._has_ended(handle):
            return ""
        os.ftruncate(handle.journal, STACK_AT)
        os.lseek(handle.journal, STACK_AT, os.SEEK_SET)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, STACK_SIGNAL)
        time.sleep(PAUSE_SECONDS)
        return os.pread(handle.journal, _MOST_STACK, STACK_AT).decode("utf-8", "replace")

    def waited(self, handle: Handle) -> float:
        """Seconds for which a worker was ready to run, and others ran; 0 where the system hides it."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(Path(f"/proc/{self.pid_of(handle)}/schedstat").read_text("ascii").split()[1]) / 1e9
        return 0.0

    def discard(self, handle: Handle, *, dead: bool) -> None:
        """Let go of a worker that nobody needs any more; one that is not dead is killed, but not waited for.

        One that shares its GPU, and is not busy, ends by itself when the channel is closed.
        """
        if not dead and not handle.shared:
            self._kill(handle)
        if handle.name and not self.lost(handle) and self._ended.pop(handle.name, None) is None:
            self._forgotten.add(handle.name)
        handle.close()

    def close(self) -> None:
        """End the zygote; its children end with it."""
        self._end_zygote(_CLOSE_SECONDS)
        self._scratch.close()

    def _end_zygote(self, seconds: float) -> None:
        """Hang up; one that does not end in time is killed."""
        self._control.close()
        if self._process is None:  # another process has started it, and ends it
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_group(self._process.pid)
            self._process.wait()

    def renew(self, seconds: float = _CLOSE_SECONDS) -> None:
        """End the zygote, and all its workers, and start another; one that does not end in time is killed."""
        self._end_zygote(seconds)
        self._start()

    def _begin_anew(self) -> None:
        """Start another zygote: this one is gone, or does not answer, and nobody knows what became of its workers.

        Raises InternalError if several in a row have never answered: then no kernel has done that. One may have,
        that runs before its zygote has said that it was forked.
        """
        self._silent += 1
        if self._silent > _MOST_SILENT:
            raise InternalError("the zygote died before it had forked; its last words are on stderr")
        self.renew(0.0)

    def pid_of(self, handle: Handle) -> int:
        """The pid of a worker; 0 or less if that will never be known."""
        deadline = self._clock() + _START_SECONDS
        while not handle.pid and not self.lost(handle):
            self._hear(deadline - self._clock())
        return handle.pid

    def _has_ended(self, handle: Handle) -> bool:
        return self.lost(handle) or handle.name in self._ended

    def _kill(self, handle: Handle) -> None:
        pid = self.pid_of(handle)
        self._hear(0)
        if not self._has_ended(handle):
            if handle.shared:
                terminate(handle.shared, pid)
            kill_group(pid)

    def _wait_for(self, handle: Handle) -> None:
        deadline = self._clock() + _EXIT_SECONDS
        while not self._has_ended(handle):
            self._hear(deadline - self._clock())

    def _hear(self, seconds: float) -> None:
        """Take in what the zygote says soon, at most within so many seconds (0: what it has said already)."""
        if not select.select([self._control], [], [], min(max(seconds, 0), PAUSE_SECONDS))[0]:
            if seconds < 0:
                self._begin_anew()
            return
        try:
            message, pidfds, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except ConnectionResetError:
            message, pidfds = b"", []
        if not message:
            self._begin_anew()
            return
        said = from_json(message)
        if "open" in said:
            self._why_open = str(said["open"])
            return
        self._silent = 0
        if "forked" in said:
            handle = self._unclaimed.pop(0)
            handle.name, handle.pid = said["forked"], _pid_behind(*pidfds)
        elif said["ended"] in self._forgotten:
            self._forgotten.remove(said["ended"])
        else:
            self._ended[said["ended"]] = Ending(said["code"], said["tail"])


def _pid_behind(pidfd: int) -> int:
    """The pid of a process, as this one knows it, whatever it is called where it lives; -1 if it has ended."""
    about = Path(f"/proc/self/fdinfo/{pidfd}").read_text("ascii")
    os.close(pidfd)
    return next(int(line.split()[1]) for line in about.splitlines() if line.startswith("Pid:"))


_UNKNOWN = Ending(ZYGOTE_LOST, "")


class ForkedPool(WorkerPool):
    """A pool whose zygote was forked by another one's, and ends with that one at the latest."""

    def __init__(self, control: socket.socket, pool: WorkerPool, environment: dict[str, str]) -> None:
        """environment: of a zygote that is started, should this one be lost."""
        self._settings, self._most, self.on_gpu = pool._settings, pool._most, pool.on_gpu  # noqa: SLF001  its own kind
        self.backends = pool.backends
        self._environment, self._python = environment, pool._python  # noqa: SLF001  its own kind
        self._process, self._zygotes, self._silent, self._why_open = None, 0, 0, ""
        self._listen_to(control)

    def let_go(self) -> None:
        """Close this process's copy, in the process that has made it for another."""
        self._control.close()

    def close(self) -> None:
        """End the zygote; its children end with it."""
        self._end_zygote(_EXIT_SECONDS)


def pool_of(
    subjects: Sequence[Subject], pool: WorkerPool | None, *, memory_mb: int, closed: bool, place: Place | None
) -> WorkerPool:
    """A pool of workers that can run these subjects, which share an interpreter; the others as for a Sandbox.

    Raises UsageError if one cannot run here at all: its interpreter would say so in words of its own.
    """
    must_be_available(subjects)
    if pool is None:
        python = next((s.python for s in subjects), "")
        pool = pool_ahead({s.loader for s in subjects}, memory_mb, closed=closed, place=place, python=python)
    if any(s.launch.startswith("{") and gradient_of(s.launch) for s in subjects):  # others have TOML there
        pool.import_first(NEEDED)
    return pool


def pool_ahead(
    loaders: Collection[str], memory_mb: int, *, closed: bool, place: Place | None = None, python: str = ""
) -> WorkerPool:
    """Start what workers come from, before it is known which subjects they run; a sandbox may have it."""
    environment = place.environment if place else {}
    return WorkerPool(tuple(sorted(loaders)), memory_mb, environment, "" if closed else ASKED, python)
