"""Messages between the supervisor, the zygote and the worker."""

from __future__ import annotations

import signal
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.corpus.process.channel import frame

CHANNEL_LOST = 86
"""Exit code of a worker whose subject closed the channel under it."""
WORKER_FAILED = 89
"""Exit code of a worker whose own code has failed, which it has said."""

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
class Round:
    """A round of calls that are timed, in memory that stays there for the next one (kernels/worker/timed.py)."""

    calls: int
    flush: int = 0
    """Bytes that are gone through before each call, so that no cache holds the inputs; 0: none."""
    quiet: bool = False
    """Whether the outputs are only compared there with the first ones, and not sent."""
    new: bool = False
    """Whether its calls are the first that see these inputs."""
    lead: int = 0
    """Calls before those: a process that was asleep is slow at first."""
    burst: bool = False
    """Whether the calls follow one another at once, and are timed as one."""
    rooms: int = 1
    """Cases whose memory is kept, at most."""


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
    round: Round | None = None
    """How it is timed; None: it is not."""


def encode_subjects(subjects: dict[str, Subject], faces: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The first message to a worker: who may be asked for, and each op's interface."""
    return frame({"subjects": {k: s.model_dump() for k, s in subjects.items()}, "faces": faces}, [])


def told(task: Task) -> dict[str, Any]:
    """A task in a message, without its subjects."""
    return {"case": task.case, "outputs": task.outputs, "large": task.large, "walls": task.walls, "round": task.round}


def encode_batch(tasks: list[tuple[int, Task]], token: str = "", way: str = "") -> bytes:
    """A batch: (number, task) pairs; replies carry the numbers and the token.

    way: how outputs are offered; empty: they are sent.
    """
    said = [{"n": n, "subjects": task.subjects, **told(task)} for n, task in tasks]
    return frame({"tasks": said, "token": token, "way": way}, [])
