"""The process that all workers are forked from: it imports what is slow to import once, and forks in milliseconds.

It runs no subject itself. It keeps the last words of its children (what they wrote to stdout and stderr, however much),
reaps them and tells the supervisor how they ended. What they leave behind becomes its own, and is ended with them. It
dies with the supervisor, and the children die with it. Where the system allows it, all of them live in a closed place
(enclosure.py), where pids are others than outside: the supervisor is told of a worker by a descriptor of its process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from kernel_assay.corpus.process.child import taken
from kernel_assay.corpus.process.interpreter import hand_back
from kernel_assay.corpus.process.parent_death import adopt_orphans, die_with_parent
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.support.walls import fault_note
from kernel_assay.kernels.boundary.processes import children, end_strays, kill_group
from kernel_assay.kernels.boundary.protocol import FORK
from kernel_assay.kernels.worker import worker
from kernel_assay.kernels.worker.enclosure import Enclosure
from kernel_assay.kernels.worker.tampering import snapshot

TAIL = 4096
"""Bytes of a child's output that are kept."""


@dataclass(slots=True)
class Child:
    """A forked worker."""

    pid: int
    pidfd: int
    output: int
    keeper: int = 0
    """The first process of those that end with it, where it lives in a closed place (enclosure.py)."""
    tail: bytes = b""


@dataclass(slots=True)
class ChildZygote:
    """A forked zygote, which serves another supervisor."""

    pid: int
    pidfd: int


class Zygote:
    """Waits for fork requests, children's output and children's ends."""

    def __init__(
        self, control: socket.socket, memory_mb: int, scratch: str, enclosure: Enclosure | None = None
    ) -> None:
        """enclosure: the closed place that this process is in; None: workers run in the open."""
        self._control, self._enclosure = control, enclosure
        self._memory = memory_mb << 20
        self._scratch = scratch
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)
        self._children: dict[int, Child] = {}
        self._branches: list[ChildZygote] = []
        self._others = children()
        """Processes that are none of its workers, nor left by one."""

    def greet(self, why: str) -> None:
        """Tell the supervisor why workers run in the open; empty: they do not."""
        self._tell({"open": why})

    def serve(self) -> None:
        """Serve until the supervisor hangs up, or is gone; then nothing is left of the children."""
        try:
            self._serve()
        finally:
            self._end_all()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is not key:
                    continue  # one before it in this batch has buried that child
                if key.data is None:
                    if not self._obey():
                        return
                elif isinstance(key.data, ChildZygote):
                    self._let_go(key.data)
                elif key.fd == key.data.output:
                    self._listen(key.data)
                else:
                    self._reap(key.data)

    def _obey(self) -> bool:
        """Do what the supervisor asks for; False: it has hung up."""
        try:
            message, fds, _, _ = socket.recv_fds(self._control, 1 << 12, 2)
        except ConnectionResetError:  # the supervisor left with words of ours unread
            return False
        if not message:
            return False
        if message == FORK:
            self._fork(*fds)
        elif isinstance(said := from_json(message), list):
            for module in said:
                with contextlib.suppress(Exception):  # who needs it is told
                    import_module(module)
        else:
            self._branch(said, *fds)
        return True

    def _branch(self, environment: dict[str, str], control: int) -> None:
        """A zygote like this one, with what is imported already, for another supervisor."""
        pid = os.fork()
        if pid == 0:
            self._become_zygote(environment, control)
        os.close(control)
        branch = ChildZygote(pid, os.pidfd_open(pid))
        self._selector.register(branch.pidfd, selectors.EVENT_READ, branch)
        self._branches.append(branch)

    def _become_zygote(self, environment: dict[str, str], control: int) -> None:
        try:
            os.setsid()
            _outlive_nobody()
            self._forget_the_others()
            os.environ.update(environment)
            Zygote(socket.socket(fileno=control), self._memory >> 20, self._scratch, self._enclosure).serve()
            os._exit(0)
        finally:
            os._exit(1)

    def _let_go(self, branch: ChildZygote) -> None:
        """Forget a branch that has ended, which is no news to anybody but its own supervisor."""
        self._selector.unregister(branch.pidfd)
        os.close(branch.pidfd)
        os.waitpid(branch.pid, 0)
        self._branches.remove(branch)

    def _forget_the_others(self) -> None:
        """Close what is this process's own, in a child."""
        self._selector.close()
        self._control.close()
        for child in self._children.values():
            os.close(child.output)
            os.close(child.pidfd)
        for branch in self._branches:
            os.close(branch.pidfd)

    def _fork(self, channel: int, journal: int) -> None:
        read, write = os.pipe()
        for fd in (channel, journal):
            os.set_inheritable(fd, False)  # not for who keeps the worker's processes
        keeper = self._enclosure.begin_worker() if self._enclosure else 0
        pid = os.fork()
        if pid == 0:
            self._become_worker(channel, journal, write)
        if self._enclosure:
            self._enclosure.end_fork()
        for fd in (channel, journal, write):
            os.close(fd)
        os.set_blocking(read, False)
        child = Child(pid, os.pidfd_open(pid), read, keeper)
        self._children[pid] = child
        self._selector.register(child.output, selectors.EVENT_READ, child)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self._tell({"forked": pid}, child.pidfd)

    def _end_all(self) -> None:
        """End all children, and what they have started."""
        for pid in (*self._children, *(branch.pid for branch in self._branches)):
            kill_group(pid)
        end_strays(self._others)

    def _become_worker(self, channel: int, journal: int, output: int) -> None:
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            adopt_orphans()  # so that the zygote gets them when this process has ended, and not while it runs
            self._forget_the_others()
            os.dup2(output, 1)
            os.dup2(output, 2)
            if self._enclosure:
                self._enclosure.seclude()
            os.chdir(self._scratch)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            limit = _data_in_use() + self._memory
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            faulthandler.enable()
            worker.main(channel, journal)
        finally:
            os._exit(1)

    def _listen(self, child: Child) -> None:
        try:
            heard = os.read(child.output, 1 << 16)
        except BlockingIOError:
            return
        if not heard:
            self._selector.unregister(child.output)
        child.tail = (child.tail + heard)[-TAIL:]

    def _reap(self, child: Child) -> None:
        if child.output in self._selector.get_map():
            self._listen(child)
            if child.output in self._selector.get_map():
                self._selector.unregister(child.output)
        self._selector.unregister(child.pidfd)
        os.close(child.output)
        os.close(child.pidfd)
        kill_group(child.pid)  # what it has started does not outlive it
        _, status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        keepers = {other.keeper for other in self._children.values()}
        known = {*self._others, *self._children, *keepers, *(branch.pid for branch in self._branches)}
        code = os.waitstatus_to_exitcode(status)
        ended = {"ended": child.pid, "code": code, "tail": child.tail.decode(errors="replace")}
        if child.keeper:  # with it ends all that the worker has started, so that nobody has to wait for that
            os.kill(child.keeper, signal.SIGKILL)
            self._tell(ended)
        end_strays(known)
        if not child.keeper:
            self._tell(ended)

    def _tell(self, message: dict[str, Any], *fds: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # serve() sees the hang-up
            socket.send_fds(self._control, [to_json(message)], fds)


def _outlive_nobody() -> None:
    """End when the supervisor does, but not before all that workers have left behind, which this process inherits."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, _leave)
    die_with_parent(signal.SIGTERM)


def _leave(*_: object) -> None:
    raise SystemExit


def _data_in_use() -> int:
    """Bytes that count against RLIMIT_DATA now."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))


def main() -> None:
    """Entry of the zygote process: its argument names a file with its settings."""
    settings = taken(sys.argv[1])
    die_with_parent()
    control = socket.socket(fileno=settings["control"])
    control.set_inheritable(False)
    enclosure, why = Enclosure(**settings["enclosure"]), settings["open"]
    if not why and not (why := enclosure.refusal()):
        enclosure.enter()
    with contextlib.suppress(OSError):  # the folder may be gone
        sys.path[0] = str(Path.cwd())  # a subject may import what lies where the command was given
    loaders = [loader_of(backend) for backend in settings["backends"]]
    hand_back()
    for loader in loaders:
        with contextlib.suppress(ImportError):  # of another interpreter; whoever is loaded says what is lacking
            loader.preload()
    fault_note()
    snapshot()
    gc.collect()
    gc.freeze()
    _outlive_nobody()
    zygote = Zygote(control, settings["memory_mb"], enclosure.scratch, None if why else enclosure)
    zygote.greet(why)
    zygote.serve()
    os._exit(0)  # nothing is left to be put away; Triton's library would complain on stderr of what it finds
