"""Processes of ours: one command line starts them all, wherever that happens, and one class talks to them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from pydantic_core import from_json, to_json

import kernel_assay
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.channel import Channel, Message, frame
from kernel_assay.corpus.process.import_limit import NOTICE_SECONDS, say_waiting
from kernel_assay.corpus.process.interpreter import STAND_INS, STOOD_IN
from kernel_assay.corpus.process.parent_death import die_with_parent

HOME = Path(kernel_assay.__file__).resolve().parent.parent
"""The folder that this package is imported from."""
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import kernel_assay; del sys.path[0]; "
    "from importlib import import_module; sys.exit(import_module('kernel_assay.' + sys.argv.pop(1)).main())"
)
"""HOME is taken from the path again: what else lies in it must not hide a person's own modules."""
_LEND = """
import json, sys
from importlib.machinery import PathFinder
class Lent:
    def __init__(self, places, stands_in=False):
        self.places, self.stands_in = places, stands_in
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [self.places[name]]) if name in self.places else None
lent, in_front = json.loads(sys.argv.pop(1))
sys.meta_path.append(Lent(lent))
sys.meta_path.insert(0, Lent(in_front, stands_in=True))
"""
"""Packages of ours, for another interpreter, behind all that it has; in front, until they are handed back
(interpreter.py), those that stand in for what it may have of another version. None of the rest of ours is seen."""
EXIT_SECONDS = 5.0
"""In which a process ends that has hung up, or was killed."""
_LAST_WORDS = 2000
"""Bytes of what a process printed that are read, from the end."""


def command_of(
    module: str, *arguments: str, python: str = "", lent: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """The command line of a process that runs `main` of a module of kernel_assay; its arguments are sys.argv[1:].

    python: the interpreter; empty: this one. lent: packages of ours that it has not, and the folders they are in.
    """
    in_front = dict.fromkeys(STOOD_IN, str(STAND_INS))
    boot = [_LEND + _BOOT, json.dumps([dict(lent), in_front])] if python else [_BOOT]
    return [python or sys.executable, "-c", *boot, str(HOME), module, *arguments]


def start(
    module: str,
    *arguments: str,
    under: Sequence[str] = (),
    fds: Sequence[int] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    folder: Path | None = None,
    python: str = "",
    lent: Mapping[str, str] = MappingProxyType({}),
    out: IO[bytes] | int | None = None,
    err: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that runs `main` of a module of kernel_assay, in a session of its own: Ctrl-C is not for it.

    under: the command line of a tool that runs it; fds: descriptors that it inherits; environment: variables besides
    those of here; python, lent: as for `command_of`; out, err: where it prints, if not where this process does.
    """
    return subprocess.Popen(
        [*under, *command_of(module, *arguments, python=python, lent=lent)],
        pass_fds=fds,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


def handed(message: Message) -> int:
    """A file in memory that holds a message of any length, for a process that inherits it: see `taken`."""
    file = os.memfd_create("message")
    with open(file, "wb", closefd=False) as written:
        written.write(to_json(message))
    return file


def taken(number: str) -> Message:
    """The message in a file that this process has inherited, by its number, which is closed."""
    with open(int(number), "rb") as file:  # noqa: PTH123  it has no path
        file.seek(0)
        message: Message = from_json(file.read())
    return message


class GoneError(Exception):
    """A process has ended, or does not answer; its last words."""

    def __init__(self, words: str, *, silent: bool = False) -> None:
        """silent: it goes on, but did not answer in time."""
        super().__init__(words)
        self.silent = silent


class ChildProcess:
    """A process that answers one message after another."""

    def __init__(
        self, module: str, memory: int, settings: Message, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """module: whose `main` calls serve_parent; memory: a file both have open; environment: as for `start`."""
        ours, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        told = {"channel": theirs.fileno(), "memory": memory, **settings}
        self._begin(module, told, self._words.fileno(), environment)
        theirs.close()
        self._channel = Channel(ours)

    def _begin(self, module: str, settings: Message, words: int, environment: Mapping[str, str]) -> None:
        """Start it. words: where it prints."""
        given = handed(settings)
        fds = settings["channel"], settings["memory"], given
        self._process = start(module, str(given), fds=fds, environment=environment, out=words, err=words)
        os.close(given)

    @property
    def pid(self) -> int:
        """Pid of the process."""
        return self._process.pid

    def ask(self, message: Message, seconds: float) -> Message:
        """Send a message and wait for the answer. Raises GoneError."""
        try:
            self._channel.send(frame(message, []))
        except OSError as error:
            raise GoneError(self._ending()) from error
        return self.hear(seconds)

    def hear(self, seconds: float, what: str = "") -> Message:
        """The next message. Raises GoneError. what: loads until then, and a person is told of it if that takes long."""
        try:
            if what and seconds > NOTICE_SECONDS and not self._channel.ready(NOTICE_SECONDS):
                say_waiting(what, seconds)
                seconds -= NOTICE_SECONDS
            if not self._channel.ready(seconds):
                raise GoneError(f"it did not finish in {seconds:g} s", silent=True)
            return self._channel.receive()[0]
        except (EOFError, OSError) as error:
            raise GoneError(self._ending()) from error

    def _ending(self) -> str:
        code = self._exit_code()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        how += ", as where memory runs out" if how == "SIGKILL" else ""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_WORDS))
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended ({how})" + (f": {lines[-1]}" if lines else "")

    def _exit_code(self) -> int | None:
        """Wait for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
        return self._process.returncode

    def close(self) -> None:
        """End it, and whatever it has started."""
        self._channel.close()
        self._end()
        self._words.close()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


Answer = Callable[[Message], Message]


def serve_parent(begin: Callable[[Message], tuple[Message, Answer]]) -> None:
    """Be a ChildProcess: greet the process that has started this one, then answer it until it hangs up or ends.

    begin: takes the settings, and gives the first words and what answers. UsageError from either becomes `refused`.
    """
    die_with_parent()
    settings = taken(sys.argv[1])
    channel = Channel(socket.socket(fileno=settings["channel"]))

    def tell(message: Message) -> None:
        channel.send(frame(message, []))

    try:
        hello, answer = begin(settings)
    except UsageError as error:
        tell({"refused": str(error)})
        return
    tell(hello)
    while True:
        try:
            message, _ = channel.receive()
        except EOFError:
            return
        try:
            tell(answer(message))
        except UsageError as error:
            tell({"refused": str(error)})
