"""Messages between two processes of ours: JSON heads with raw bytes behind, framed, never pickle."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any

from pydantic_core import from_json, to_json

Message = dict[str, Any]
"""A head without bytes behind it."""

_LENGTHS = struct.Struct("<4sQI")
_MAGIC = b"\xaaKA\x01"
"""Begins every message: what a subject writes into the channel by mistake does not."""
_ROOM = 1 << 18
"""Bytes asked for at once, at least."""
_MOST_ROOM = 1 << 26
"""The same, at most: a message takes memory as it arrives, not as it says it will."""
MOST = 1 << 33
"""Bytes of a message, unless a channel has another limit."""


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

    def __init__(self, sock: socket.socket, most: int = MOST) -> None:
        """most: bytes of the longest message that the other side may send."""
        self._socket, self._most = sock, most
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

    def ready(self, seconds: float) -> bool:
        """Read until a message is whole, for so many seconds at most; whether receive() gives one at once."""
        deadline = time.monotonic() + seconds
        while not self._complete():
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000.0):
                return False
            self._fill()
        return True

    @property
    def begun(self) -> int:
        """Bytes that are there of a message that is not whole."""
        return 0 if self._complete() else len(self._buffer) - self._at

    def distrust(self) -> None:
        """Take nothing that comes from the other side for a message any more."""
        self._most = -1

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
        if not isinstance(head, dict):
            raise GarbledError("garbage on the channel")
        payload = memoryview(self._buffer[start + head_size : start + size])
        self._at = start + size
        return head, payload

    def _fill(self) -> None:
        """Read once, behind what is still unread."""
        del self._buffer[: self._at]
        self._at = 0
        received = self._socket.recv(min(max(_ROOM, self._missing()), _MOST_ROOM))
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
        magic, size, head_size = _LENGTHS.unpack_from(self._buffer, self._at)
        if magic != _MAGIC or not head_size <= size <= self._most:
            raise GarbledError("garbage on the channel")
        return int(_LENGTHS.size + size - unread)
