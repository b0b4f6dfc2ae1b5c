"""What the supervisor, the zygote and the worker say to one another: JSON heads with raw bytes behind, never pickle."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from corpus.records import Case, Subject, TensorSpec

CHANNEL_LOST = 86
"""Exit code of a worker whose subject closed the channel under it."""

JOURNAL = struct.Struct("<qqq")
"""The journal: task, subject (its position in the batch's list) and CLOCK_MONOTONIC ns of the run in progress."""
IDLE = -1


@dataclass(frozen=True, slots=True)
class Task:
    """One case for several subjects, in this order."""

    case: Case
    outputs: dict[str, TensorSpec]
    subjects: tuple[str, ...]
    """Keys."""


def encode_subjects(subjects: dict[str, Subject], faces: dict[str, dict[str, list[str]]]) -> bytes:
    """The first message to a worker: who may be asked for, and each op's interface."""
    return to_json({"subjects": {k: s.model_dump() for k, s in subjects.items()}, "faces": faces})


def encode_batch(tasks: list[tuple[int, Task]]) -> bytes:
    """A batch: (number, task) pairs; replies carry the numbers."""
    return to_json(
        {
            "tasks": [
                {"n": n, "case": t.case, "outputs": t.outputs, "subjects": t.subjects}
                for n, t in tasks
            ]
        }
    )


def frame(head: dict[str, Any], payload: list[bytes]) -> bytes:
    """A message: length of the head, the head as JSON, the payload."""
    text = to_json(head)
    return b"".join([len(text).to_bytes(4, "little"), text, *payload])


def unframe(message: bytes) -> tuple[dict[str, Any], memoryview]:
    """The head and the payload of a message; the payload is writable memory of its own."""
    size = int.from_bytes(message[:4], "little")
    head: dict[str, Any] = from_json(message[4 : 4 + size])
    return head, memoryview(bytearray(memoryview(message)[4 + size :]))
