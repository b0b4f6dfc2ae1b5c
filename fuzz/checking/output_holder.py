"""Outputs of large cases, held by a process of the oracle's: it is started when the first one comes.

That process has a context of its own on the GPU and runs no subject. Samples of what it holds come back through a file
in memory; all else is small. Whatever goes wrong with it is trouble of our own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.execution import OutputReport
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import GarbledError, Message
from kernel_assay.corpus.process.child import ChildProcess, GoneError
from kernel_assay.corpus.process.forked_child import ForkedChild
from kernel_assay.corpus.remote_array import Remote
from kernel_assay.kernels.boundary.output_transfer import IPC, SHARED
from kernel_assay.kernels.sandbox.batch import LostError, NoRoomError
from kernel_assay.oracles.judging.measure import Measured
from kernel_assay.oracles.large.remote_output import Held, Summed
from kernel_assay.oracles.large.suspects import MOST, Room, Suspects

_MODULE = "oracles.device.holder_process"
_START_SECONDS = 120.0
_ANSWER_SECONDS = 600.0
RIGHT = ""
"""In place of a subject's key: the reference in float64."""


class HolderProcess:
    """The process, and how it is talked to; it is the sandbox's taker of outputs (kernels.sandbox.batch.Taker)."""

    def __init__(self, device: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        """device: cpu or cuda; environment: what makes the process see the GPU that the subjects run on."""
        self._device, self._environment = device, environment
        self.way = IPC if device == "cuda" else SHARED

    @cached_property
    def _memory(self) -> int:
        return os.memfd_create("judged")

    @cached_property
    def process(self) -> ChildProcess:
        """The process. Raises InternalError if it does not start."""
        settings = {"device": self._device, "memory": self._memory}
        process = (
            ChildProcess(_MODULE, self._memory, settings, self._environment)
            if self._device == "cuda"  # whatever has begun to use CUDA cannot be forked
            else ForkedChild(_MODULE, self._memory, settings, ["torch"], self._environment)
        )
        try:
            trouble = str(process.hear(_START_SECONDS).get("refused", ""))
        except GoneError as gone:
            trouble = str(gone)
        if trouble:
            process.close()
            raise InternalError(f"the oracle of large cases does not start: {trouble}")
        return process

    def close(self) -> None:
        """End the process, if there is one."""
        if process := vars(self).pop("process", None):
            process.close()
        if memory := vars(self).pop("_memory", None):
            os.close(memory)

    def ask(self, word: str, keys: list[tuple[str, str]] | None = None, **more: Any) -> Message:
        """Ask oracles.device.holder_process. Raises InternalError if it does not answer, UsageError if it refuses."""
        try:
            said = self.process.ask({"word": word, "keys": keys or [], **more}, _ANSWER_SECONDS)
        except GoneError as gone:
            raise InternalError(f"the oracle of large cases: {gone}") from gone
        if "refused" in said:
            raise UsageError(said["refused"])
        return said

    def read(self, size: int) -> bytearray:
        """The first bytes of what it has left in the file."""
        room = bytearray(size)
        view, at = memoryview(room), 0
        while at < size:
            at += os.preadv(self._memory, [view[at:]], at)
        return room

    def take(self, subject: str, report: OutputReport, offer: Message) -> HeldOutput:
        """Have it copy an output, now. Raises LostError and NoRoomError, GarbledError for an offer that is none."""
        told = {**offer, "dtype": report.dtype, "shape": report.shape}
        if offer.get("bytes") != math.prod(report.shape) * format_of(report.dtype).dtype.itemsize:
            raise GarbledError(f"{offer.get('bytes')} bytes are offered for {report.name} of {subject}")
        said = self.ask("take", [(subject, report.name)], offer=told)
        if "room" in said:
            raise NoRoomError(said["room"])
        if "lost" in said:
            raise LostError(said["lost"])
        return HeldOutput(self, (subject, report.name), report.shape, format_of(report.dtype).dtype)

    def refer(self, case: Case) -> dict[str, Held]:
        """The outputs in float64, by the op's own formula; none, if there is no such thing or no room for it."""
        said = self.ask("refer", case=case)
        forms = {name: (tuple(one["shape"]), format_of(one["dtype"]).dtype) for name, one in said.items()}
        return {name: HeldOutput(self, (RIGHT, name), *form) for name, form in forms.items()}

    def forget(self) -> None:
        """Have it let go of all that it holds; a process that was never started is not."""
        if "process" in vars(self):
            self.ask("forget")


class HeldOutput(Held):
    """One output that the process holds."""

    def __init__(
        self, holder: HolderProcess, key: tuple[str, str], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        super().__init__(shape, dtype)
        self.holder, self.key = holder, key

    def take(self, along: Mapping[int, NDArray[np.int64]]) -> Array:
        """Take a copy by a message, through the file."""
        return _asked(self, "values", along)

    def sizes(self) -> tuple[Remote, Remote]:
        """Compute sizes there, where they stay, too."""
        return _Sizes(self, "rows", self.shape[:-1]), _Sizes(self, "columns", self.shape[-1:] or (1,))

    def suspects(self, other: Held, room: Room, most: int = MOST) -> Suspects:
        """Find suspects there."""
        told = {"level": room.level, "floor": room.floor, "bitwise": room.bitwise, "most": most}
        said = self.holder.ask("suspects", self._with(other), room=told)
        return Suspects(np.array(said["at"], np.int64), np.array(said["ratio"], np.float64), said["beyond"])

    def measured(self, other: Held) -> Measured:
        """Measure there."""
        said = self.holder.ask("measured", self._with(other))
        return Measured(**{**said, **{name: tuple(said[name]) for name in ("first_bad", "ulp_histogram")}})

    def algebra(self, case: Case, subject: Subject) -> Summed | None:
        """Sum there."""
        said = self.holder.ask("algebra", case=case, subject=subject)
        return Summed(Share.model_validate(said["share"]), tuple(said["places"])) if said else None

    def unwritten(self, first: int, count: int) -> str:
        """Find unwritten elements there."""
        return str(self.holder.ask("unwritten", [self.key], first=first, count=count)["pattern"])

    def _with(self, other: Held) -> list[tuple[str, str]]:
        assert isinstance(other, HeldOutput)
        return [self.key, other.key]


class _Sizes(Remote):
    """Root mean squares of the rows or columns of an output that is held."""

    def __init__(self, of: HeldOutput, what: str, shape: tuple[int, ...]) -> None:
        super().__init__(shape, np.dtype(np.float64))
        self._of, self._what = of, what

    def take(self, along: Mapping[int, NDArray[np.int64]]) -> Array:
        """Take a copy by a message, through the file."""
        return _asked(self._of, self._what, along, self)


def _asked(output: HeldOutput, of: str, along: Mapping[int, NDArray[np.int64]], form: Remote | None = None) -> Array:
    """Values of what has this form (None: the output's own)."""
    form = form or output
    told = [(axis, _told(index)) for axis, index in along.items()]
    said = output.holder.ask("values", [output.key], of=of, along=told)
    shape = tuple(len(along[axis]) if axis in along else extent for axis, extent in enumerate(form.shape))
    return np.frombuffer(output.holder.read(said["bytes"]), form.dtype).reshape(shape)


def _told(index: NDArray[np.int64]) -> Any:
    """Indices for a message; of a stretch its ends."""
    if len(index) > 2 and bool((np.diff(index) == 1).all()):
        return {"range": (int(index[0]), int(index[-1]) + 1)}
    return index.tolist()
