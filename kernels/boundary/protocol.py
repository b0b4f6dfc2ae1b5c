"""Messages between the supervisor, the zygote and the worker: JSON heads with raw bytes behind, never pickle."""

from __future__ import annotations

import select
import signal
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec

CHANNEL_LOST = 86
"""Exit code of a worker whose subject closed the channel under it."""

FORK = b"fork"
"""What a supervisor tells a zygote that wants a worker; one that wants a zygote of its own sends variables as JSON."""
ZYGOTE_LOST = 88
"""Stands for the exit code of a worker whose zygote is gone, so that nobody can know it."""

JOURNAL = struct.Struct("<qqq")
"""The journal: task, subject (its position in the batch's list) and CLOCK_MONOTONIC ns of the run in progress."""
IDLE = -1
FAULT = struct.Struct("<qqq")
"""Behind it: where the inputs begin that lie between walls (walls.py), address and error code of a fault."""
STACK_AT = 64
"""Where in the journal's file a worker writes where it is, when it is sent STACK_SIGNAL."""
STACK_SIGNAL = signal.SIGRTMIN + 7


@dataclass(frozen=True, slots=True)
class Task:
    """One case for several subjects, in this order."""

    case: Case
    outputs: dict[str, TensorSpec]
    subjects: tuple[str, ...]
    """Keys."""
    large: bool = False
    """Only parts of it are made a second time, by the oracle: what cannot be compared with them is checked there."""
    walls: bool = True
    """Whether its inputs may lie between walls, too."""


def encode_subjects(subjects: dict[str, Subject], faces: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The first message to a worker: who may be asked for, and each op's interface."""
    return frame({"subjects": {k: s.model_dump() for k, s in subjects.items()}, "faces": faces}, [])


def encode_batch(tasks: list[tuple[int, Task]], way: str = "") -> bytes:
    """A batch: (number, task) pairs; replies carry the numbers. way: how outputs are offered; empty: they are sent."""
    said = [
        {"n": n, "case": t.case, "outputs": t.outputs, "subjects": t.subjects, "large": t.large, "walls": t.walls}
        for n, t in tasks
    ]
    return frame({"tasks": said, "way": way}, [])


def frame(head: dict[str, Any], payload: list[bytes]) -> bytes:
    """A message: lengths of the whole and of the head, the head as JSON, the payload."""
    text = to_json(head)
    size = len(text) + sum(map(len, payload))
    return b"".join([_LENGTHS.pack(_MAGIC, size, len(text)), text, *payload])


_LENGTHS = struct.Struct("<4sQI")
_MAGIC = b"\xaaKA\x01"
"""Begins every message: what a subject writes into the channel by mistake does not."""
_ROOM = 1 << 18
"""Bytes asked for at once."""


class GarbledError(OSError):
    """Something that is no message came out of a channel: a subject wrote into a descriptor that is not its own."""


class Channel:
    """One end of a stream socket that carries framed messages, buffered: many small messages cost one read.

    Raises EOFError when the other side has hung up, OSError when this side is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN | select.POLLHUP)
        self._buffer = bytearray()
        self._at = 0

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def fileno(self) -> int:
        """Descriptor of the socket, to wait for several."""
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send one framed message, whole."""
        self._socket.sendall(message)

    def readable(self, seconds: float) -> bool:
        """Whether receive() has something to do within so many seconds: a message, part of one, or a hang-up."""
        return self._complete() or bool(self._poll.poll(max(0.0, seconds) * 1000.0))

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """The next message: its head, and its payload as writable memory of its own."""
        while not self._complete():
            self._fill()
        _, size, head_size = _LENGTHS.unpack_from(self._buffer, self._at)
        start = self._at + _LENGTHS.size
        try:
            head: dict[str, Any] = from_json(bytes(self._buffer[start : start + head_size]))
        except ValueError as error:
            raise GarbledError("garbage on the channel") from error
        payload = memoryview(self._buffer[start + head_size : start + size])
        self._at = start + size
        return head, payload

    def _fill(self) -> None:
        """Read once, behind what is still unread."""
        del self._buffer[: self._at]
        self._at = 0
        received = self._socket.recv(max(_ROOM, self._missing()))
        if not received:
            raise EOFError
        self._buffer += received

    def _complete(self) -> bool:
        return self._missing() <= 0

    def _missing(self) -> int:
        """Bytes until the next message is whole."""
        unread = len(self._buffer) - self._at
        if unread < _LENGTHS.size:
            return _LENGTHS.size - unread
        magic, size, _ = _LENGTHS.unpack_from(self._buffer, self._at)
        if magic != _MAGIC:
            raise GarbledError("garbage on the channel")
        return int(_LENGTHS.size + size - unread)
