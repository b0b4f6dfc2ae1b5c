"""Devices as a command line names them, and what a process is told so that it uses that one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from importlib.util import find_spec

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.kernels.backend_registry import is_on_gpu
from kernel_assay.kernels.backends.cuda_support.driver import device_count

GPU_JOBS = 12
"""Processes for each GPU, at most: each has a context there, which takes half a gigabyte (scripts/bench/fleet)."""
_BUSY = 1.6
"""Processors that a process and its worker keep busy together."""
_NAME = re.compile(r"cpu|cuda(?::(?P<which>all|\d+))?")
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable: which GPUs a process sees."""
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""Environment variable: where a process finds a Multi-Process Service (sandbox/mps.py)."""
_NOWHERE = "/nonexistent"


@dataclass(frozen=True, slots=True)
class Place:
    """One device."""

    device: str
    """cpu or cuda."""
    environment: dict[str, str] = field(default_factory=dict)
    """What makes a process see it, and no other of its kind."""
    shared: dict[str, str] = field(default_factory=dict)
    """What makes a process use it together with others, instead of in turns (sandbox/mps.py); empty: it cannot."""


def is_made_on_gpu(subject: Subject) -> bool:
    """Whether a subject runs there, and torch can make its inputs there."""
    return is_on_gpu(subject) and find_spec("torch") is not None


def places_of(device: str) -> list[Place]:
    """The devices that `cpu`, `cuda`, `cuda:1` or `cuda:all` means. Raises UsageError unless all are here."""
    match = _NAME.fullmatch(device)
    if match is None:
        raise UsageError(f"device {device!r} is not known; the known ones are cpu, cuda, cuda:NUMBER and cuda:all")
    if device == "cpu":
        return [Place("cpu")]
    count = device_count()
    if not count:
        raise UsageError(f"device {device!r} is not available here, because there is no CUDA device")
    if match["which"] == "all":
        return [_gpu(number) for number in range(count)]
    number = int(match["which"] or 0)
    if number >= count:
        raise UsageError(f"device {device!r} is not available here, because there are only {count} CUDA devices")
    return [_gpu(number)]


def crew_of(device: str, jobs: int | None = None) -> list[Place]:
    """One place for each of so many processes, the devices in turn.

    jobs: how many; None or 0: one on the CPU; GPU_JOBS a GPU, if there are processors for them. Raises UsageError as
    places_of does, and for fewer processes than devices.
    """
    places = places_of(device)
    if not jobs:
        room = int((os.cpu_count() or 1) / (_BUSY * len(places)))
        jobs = 1 if device == "cpu" else len(places) * max(1, min(GPU_JOBS, room))
    if jobs < len(places):
        raise UsageError(f"--jobs {jobs} is not enough for {len(places)} devices; each needs a process at least")
    return [places[number % len(places)] for number in range(jobs)]


def _gpu(number: int) -> Place:
    """The place of a GPU among those that this process sees."""
    seen = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    # A service of the machine's is not used: what its other clients do would be told of subjects, and the reverse.
    return Place("cuda", {VISIBLE: seen[number] if number < len(seen) else str(number), PIPES: _NOWHERE})
