"""Holds what subjects left of a large case, in memory of the oracle's own, and finds out what is asked about it.

On a GPU or, with the same code, on the CPU. What a worker hands over is copied at once, so that nothing of it is needed
any more, and nothing that a subject still does can change it.
"""

from __future__ import annotations

import fcntl
import mmap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.process.channel import Message
from kernel_assay.oracles.device import measure as fused
from kernel_assay.oracles.device import suspects
from kernel_assay.oracles.device.algebra import algebra_on
from kernel_assay.oracles.device.gpu import Gpu
from kernel_assay.oracles.device.references import reference_on
from kernel_assay.oracles.device.suspects import DeviceRoom, bits_of, name_of
from kernel_assay.oracles.judging.measure import Measured, measure
from kernel_assay.oracles.large.sampled import LOOKED_AT, unwritten_pattern

NO_BUDGET = 2.0**60
"""An error that nothing finite exceeds, so that no element is looked at twice: only distances are asked for."""
Key = tuple[str, str]
"""A subject's key (empty: the reference), and the name of one of its outputs."""


class Holder:
    """The tensors of one case, on one device."""

    def __init__(self, device: str) -> None:
        """device: cpu or cuda, which is the first GPU. Raises UsageError if there is no such thing."""
        if device not in {"cpu", "cuda"}:
            raise UsageError(f"large cases cannot be judged on {device!r}; they can on cpu and cuda")
        self.device = device
        self._gpu = Gpu(0, fused.SOURCE.read_text("utf-8")) if device == "cuda" else None
        self._held: dict[Key, Tensor] = {}
        self._sizes: dict[Key, tuple[Tensor, Tensor]] = {}

    def take(self, key: Key, offer: Message) -> Message:
        """Copy an output that a worker offers: `taken`, or why it is `lost`, or why there is no `room` for it."""
        dtype: torch.dtype = getattr(torch, offer["dtype"])
        try:
            values = torch.empty(offer["bytes"], dtype=torch.uint8, device=self.device)
            if offer["bytes"]:
                self._fill(values, offer)
        except torch.OutOfMemoryError as error:
            return {"room": str(error)}
        except (InternalError, OSError) as error:
            return {"lost": str(error)}
        self._forget(key)
        self._held[key] = values.view(dtype).reshape(offer["shape"])
        return {"taken": True}

    def _fill(self, values: Tensor, offer: Message) -> None:
        """Raises InternalError or OSError for what cannot be had, as after its process has died."""
        if offer["way"] == "ipc":
            if self._gpu is None:
                raise InternalError("memory of a GPU is offered to a judge on the CPU")
            address = self._gpu.opened(bytes.fromhex(offer["handle"]))
            try:
                self._gpu.copy(values.data_ptr(), address, offer["bytes"])
            finally:
                self._gpu.closed(address)
            return
        with Path(f"/proc/{offer['pid']}/fd/{offer['file']}").open("r+b") as file:
            sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
            access = mmap.ACCESS_COPY if sealed else mmap.ACCESS_WRITE
            self._fetch(values, np.frombuffer(mmap.mmap(file.fileno(), offer["bytes"], access=access), np.uint8))

    def _fetch(self, values: Tensor, data: Array) -> None:
        if self._gpu is None:
            values.copy_(torch.from_numpy(data))
            return
        pinned = self._gpu.pin(data)
        try:
            self._gpu.send(values.data_ptr(), data)
        finally:
            if pinned:
                self._gpu.unpin(data)

    def refer(self, case: Case) -> Message:
        """Make the reference in float64: the form of its outputs; nothing if there is none."""
        made = reference_on(case, self.device) or {}
        self._held |= {("", name): values for name, values in made.items()}
        return {name: {"shape": tuple(x.shape), "dtype": name_of(x)} for name, x in made.items()}

    def algebra(self, case: Case, subject: Subject) -> Message:
        """Sums of the rows of what a subject left; nothing if nothing is known."""
        mine = {name: values for (key, name), values in self._held.items() if key == subject.key}
        found = algebra_on(case, subject, mine, self.device)
        return {"share": found.share, "places": found.places} if found else {}

    def take_some(self, key: Key, of: str, along: list[tuple[int, Any]]) -> Array:
        """Some indices of some axes of the values, or of the sizes of `rows` or `columns`, as a host array."""
        whole = self._held[key] if of == "values" else self.sizes(key)[of == "columns"]
        bits = bits_of(whole)
        for axis, some in along:
            index = np.arange(*some["range"]) if isinstance(some, dict) else np.array(some, np.int64)
            bits = bits.index_select(axis, torch.from_numpy(index).to(self.device))
        return on_host(bits.contiguous().view(whole.dtype))

    def sizes(self, key: Key) -> tuple[Tensor, Tensor]:
        """Sizes of rows and columns, computed once."""
        if key not in self._sizes:
            self._sizes[key] = suspects.sizes(self._held[key])
        return self._sizes[key]

    def suspects(self, key: Key, other: Key, room: Message) -> Message:
        """Find where two differ most; room: level, floor and bitwise of it, and how many are wanted."""
        y = self._held[other]
        there = DeviceRoom(room["level"], room["floor"], *self.sizes(other), room["bitwise"])
        found = suspects.suspects(self._held[key], y, there, room["most"])
        return {"at": found.at.tolist(), "ratio": found.ratio.tolist(), "beyond": found.beyond}

    def measured(self, key: Key, other: Key) -> Message:
        """Measure two in a fused pass: the fields of oracles.judging.measure.Measured."""
        x, y = self._held[key], self._held[other]
        return asdict(_measured_here(x, y) if self._gpu is None else _measured_there(self._gpu, x, y))

    def unwritten(self, key: Key, first: int, count: int) -> str:
        """Words for where the elements lie that kept the poison."""
        bits = bits_of(self._held[key])
        flat = bits.reshape(-1)
        starts = range(0, flat.numel(), LOOKED_AT)  # torch.nonzero counts in 32 bits on a GPU
        kept = (torch.nonzero(flat[at : at + LOOKED_AT] == -1).reshape(-1).cpu().numpy() + at for at in starts)
        return unwritten_pattern(kept, first, count, tuple(bits.shape))

    def forget(self) -> None:
        """Let go of everything."""
        self._held.clear()
        self._sizes.clear()
        if self._gpu is not None:
            torch.cuda.empty_cache()

    def _forget(self, key: Key) -> None:
        self._held.pop(key, None)
        self._sizes.pop(key, None)


def on_host(x: Tensor) -> Array:
    """A tensor as an array of one of our dtypes."""
    bits: Array = bits_of(x).contiguous().cpu().numpy()
    return bits.view(format_of(name_of(x)).dtype)


def _measured_here(x: Tensor, y: Tensor) -> Measured:
    with np.errstate(all="ignore"):
        return measure(on_host(x), on_host(y).astype(np.float64), NO_BUDGET)


def _measured_there(gpu: Gpu, x: Tensor, y: Tensor) -> Measured:
    """y: a peer, which has a slope, or a reference."""
    got, want = (fused.Tensor(t.data_ptr(), format_of(name_of(t)).dtype, tuple(t.shape)) for t in (x, y))
    slope = 0.0 if x.dtype == y.dtype else None
    return fused.compare(gpu, fused.Question(got, want, NO_BUDGET, slope)).measured
