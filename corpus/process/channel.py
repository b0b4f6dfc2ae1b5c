"""Messages between two processes of ours: JSON heads with raw bytes behind, framed, never pickle."""

from __future__ import annotations

import select
import socket
import struct
from typing import Any

from pydantic_core import from_json, to_json

Message = dict[str, Any]
"""A head without bytes behind it."""

_LENGTHS = struct.Struct("<4sQI")
_MAGIC = b"\xaaKA\x01"
"""Begins every message: what a subject writes into the channel by mistake does not."""
_ROOM = 1 << 18
"""Bytes asked for at once."""


def frame(head: Message, payload: list[bytes]) -> bytes:
    """A message: lengths of the whole and of the head, the head as JSON, the payload."""
    text = to_json(head)
    size = len(text) + sum(map(len, payload))
    return b"".join([_LENGTHS.pack(_MAGIC, size, len(text)), text, *payload])


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

    def whole(self) -> bool:
        """Read what is there, and say whether receive() gives a message at once."""
        if not self._complete():
            self._fill()
        return self._complete()

    def receive(self) -> tuple[Message, memoryview]:
        """The next message: its head, and its payload as writable memory of its own."""
        while not self._complete():
            self._fill()
        _, size, head_size = _LENGTHS.unpack_from(self._buffer, self._at)
        start = self._at + _LENGTHS.size
        try:
            head: Message = from_json(bytes(self._buffer[start : start + head_size]))
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
            raise EOFError("the other end of the channel is closed")
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
