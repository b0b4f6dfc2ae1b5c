"""Processes of ours that need the same slow imports, as torch: one process makes these once, and forks all of them.

It runs nothing itself. Each child has the environment, the folder and the descriptors that it would have if it were
started anew. Beside, it has a leash: a socket that tells how it ended, and on which it is ended by hanging up.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from types import MappingProxyType

from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import EXIT_SECONDS, ChildProcess, handed, start, taken
from kernel_assay.corpus.process.parent_death import die_with_parent

_NUMBER = struct.Struct("<i")
_FORK = b"F"
_FDS = 6
"""That come with it: the order, the channel, the memory, where it prints, the folder it is in, and the leash."""


class ForkedChild(ChildProcess):
    """A ChildProcess that finds some modules imported."""

    def __init__(
        self,
        module: str,
        memory: int,
        settings: Message,
        imports: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """imports: those modules besides its own; what does not import is left to the child."""
        self._imports = [f"kernel_assay.{module}", *imports]
        super().__init__(module, memory, settings, environment)

    def _begin(self, module: str, settings: Message, words: int, environment: Mapping[str, str]) -> None:
        self._leash, theirs = socket.socketpair()
        self._leash.settimeout(EXIT_SECONDS)
        variables = os.environb | {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        latin = {name.decode("latin-1"): value.decode("latin-1") for name, value in variables.items()}
        order = handed({"module": module, "imports": self._imports, "environment": latin, "settings": settings})
        here = os.open(".", os.O_PATH)
        try:
            _send_order([order, settings["channel"], settings["memory"], words, here, theirs.fileno()])
        finally:
            theirs.close()
            os.close(order)
            os.close(here)

    @cached_property
    def pid(self) -> int:
        """Pid of the process; 0 if it was never forked."""
        return self._heard() or 0

    def _exit_code(self) -> int | None:
        return self._heard() if self.pid else None

    def _heard(self) -> int | None:
        """The next number that the leash brings: the pid, then how it has ended."""
        with contextlib.suppress(OSError):
            said = self._leash.recv(_NUMBER.size)
            return int(_NUMBER.unpack(said)[0]) if said else None
        return None

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)
            while self._leash.recv(_NUMBER.size):
                pass
        self._leash.close()


@dataclass(frozen=True, slots=True)
class _Server:
    """The process that forks, as the others see it; those that this process forks itself may ask it, too."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    owner: int

    def close(self) -> None:
        """End it, and its children with it."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
            self.control.close()


_SERVERS: list[_Server] = []
"""The last one is asked. Those that were lost stay: whoever drops one closes files by numbers that may mean others."""
_LOCK = Lock()


def descriptors() -> set[int]:
    """What a fork of this process must keep open, if it is to start such children."""
    return {server.control.fileno() for server in _SERVERS[-1:]}


def _send_order(fds: Sequence[int]) -> None:
    with _LOCK:
        if _SERVERS:
            with contextlib.suppress(OSError):  # it is gone
                socket.send_fds(_SERVERS[-1].control, [_FORK], fds)
                return
        _SERVERS.append(_started())
        socket.send_fds(_SERVERS[-1].control, [_FORK], fds)


def _started() -> _Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent = subprocess.DEVNULL
    process = start("corpus.process.forked_child", str(theirs.fileno()), fds=[theirs.fileno()], out=silent, err=silent)
    theirs.close()
    server = _Server(process, ours, os.getpid())
    atexit.register(server.close)
    return server


@dataclass(slots=True)
class _Child:
    pid: int
    leash: socket.socket
    pidfd: int


class _Forker:
    """The process itself: waits for orders, for children that end, and for leashes that are let go."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: list[_Child] = []

    def serve(self) -> Message | None:
        """Serve until all have hung up. In a child: what it is to do."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    message, fds, _, _ = socket.recv_fds(self._control, len(_FORK), _FDS)
                    if not message:
                        return None
                    if order := self._fork(*fds):
                        return order
                elif key.fd == key.data.pidfd:
                    self._tell_end(key.data)
                else:
                    self._finish(key.data)
                    break  # its other descriptor may be among those that are left

    def _fork(self, given: int, channel: int, memory: int, words: int, folder: int, leash: int) -> Message | None:
        order = taken(str(given))
        for name in order["imports"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()
        pid = os.fork()
        if pid:
            for fd in (channel, memory, words, folder):
                os.close(fd)
            child = _Child(pid, socket.socket(fileno=leash), os.pidfd_open(pid))
            self._children.append(child)
            _tell(child, pid)
            self._selector.register(child.leash, selectors.EVENT_READ, child)
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)
            return None
        os.setsid()
        die_with_parent()
        self._let_go(leash)
        os.dup2(words, 1)
        os.dup2(words, 2)
        os.fchdir(folder)
        os.close(words)
        os.close(folder)
        os.environb.clear()
        os.environb.update({k.encode("latin-1"): v.encode("latin-1") for k, v in order["environment"].items()})
        importlib.invalidate_caches()
        return {**order, "settings": {**order["settings"], "channel": channel, "memory": memory}}

    def _let_go(self, leash: int) -> None:
        """Close what is the forking process's own, in a child."""
        os.close(leash)
        self._selector.close()
        self._control.close()
        for child in self._children:
            child.leash.close()
            os.close(child.pidfd)

    def _tell_end(self, child: _Child) -> None:
        """Tell how a child has ended; it is reaped when its leash is let go, so that its pid is nobody else's."""
        ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._selector.unregister(child.pidfd)
        _tell(child, code)

    def _finish(self, child: _Child) -> None:
        """End a child whose leash was let go, and all that it has started."""
        self._children.remove(child)
        self._selector.unregister(child.leash)
        if child.pidfd in self._selector.get_map():
            self._selector.unregister(child.pidfd)
        os.kill(child.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        child.leash.close()

    def end(self) -> None:
        """End all children."""
        for child in list(self._children):
            self._finish(child)


def _tell(child: _Child, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        child.leash.send(_NUMBER.pack(number))


def main() -> None:
    """Entry of the process: its argument is a socket that orders come by."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    forker = _Forker(control)
    order = forker.serve()
    if order is None:
        forker.end()
        return
    sys.argv = [sys.argv[0], str(handed(order["settings"]))]
    importlib.import_module(f"kernel_assay.{order['module']}").main()
