"""Messages between two processes: JSON objects, one a line."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json, to_json

from kernel_assay.corpus.process.parent_death import die_with_parent

Message = dict[str, Any]


class Wire:
    """One end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._heard = b""

    def send(self, message: Message) -> None:
        """Raises OSError if nobody listens any more."""
        self._end.settimeout(None)
        self._end.sendall(to_json(message) + b"\n")

    def receive(self, seconds: float | None = None) -> Message:
        """The next message. Raises TimeoutError if there is none in time, EOFError if the other end is closed."""
        self._end.settimeout(seconds)
        while b"\n" not in self._heard:
            try:
                heard = self._end.recv(1 << 16)
            except ConnectionResetError:
                heard = b""
            if not heard:
                raise EOFError("the other end of the wire is closed")
            self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        message: Message = from_json(line)
        return message

    def close(self) -> None:
        """Hang up."""
        self._end.close()


def answer_parent(serve: Callable[[Wire, dict[str, Any]], None]) -> None:
    """Be a process that serves the one that has started it: its settings come as one JSON argument, `wire` among them.

    It ends with that one at the latest.
    """
    die_with_parent()
    settings = from_json(sys.argv[1])
    serve(Wire(socket.socket(fileno=settings["wire"])), settings)
