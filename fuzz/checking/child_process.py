"""Another process of ours, with which messages are exchanged: one is sent, one comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from types import MappingProxyType

from pydantic_core import to_json

from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.process.channel import Message, Wire
from kernel_assay.corpus.process.child import command_of

_LAST_WORDS = 2000


class Gone(Exception):  # noqa: N818  what happened, not an error of ours
    """A process ended, or does not answer. Its words: the last ones."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Partner:
    """A process that answers one message after another."""

    def __init__(
        self, module: str, memory: int, settings: Message, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """module: whose `main` it runs; memory: a file both have open; environment: variables besides those of here."""
        ours, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed with the peer
        given = {"wire": theirs.fileno(), "memory": memory, **settings}
        self._process = subprocess.Popen(
            command_of(module, to_json(given).decode()),
            pass_fds=(theirs.fileno(), memory),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        theirs.close()
        self._wire = Wire(ours)

    @property
    def pid(self) -> int:
        """Pid of the process."""
        return self._process.pid

    def ask(self, message: Message, seconds: float) -> Message:
        """Raises Gone."""
        try:
            self._wire.send(message)
        except OSError as error:
            raise Gone(Kind.CRASHED, self._ending()) from error
        return self.hear(seconds)

    def hear(self, seconds: float) -> Message:
        """Raises Gone."""
        try:
            return self._wire.receive(seconds)
        except TimeoutError as error:
            raise Gone(Kind.TIMEOUT, f"it did not finish in {seconds:g} s") from error
        except (EOFError, OSError) as error:
            raise Gone(Kind.CRASHED, self._ending()) from error

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.returncode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_WORDS))
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended ({how})" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it, and whatever it has started."""
        self._wire.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._words.close()
