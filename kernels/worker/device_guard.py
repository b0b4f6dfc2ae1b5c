"""Guarded memory of a large case on a device, by torch: as support/guard.py has it on the host, and checked there.

No image is kept to compare with: zones and gaps have known bytes, and inputs are made anew, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.formats import FORMATS, Array, format_of
from kernel_assay.corpus.inputs.fingerprint import rows_of
from kernel_assay.corpus.inputs.materialize import digest
from kernel_assay.corpus.inputs.torch.field import CARRIERS, dtype_of
from kernel_assay.corpus.inputs.torch.recipes import materialize
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.corpus.model.execution import GuardDamage
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.kernels.backends.support.guard import ALIGNMENT, GAP, POISONS, ZONE, Item, patterns, planned


@dataclass(slots=True)
class DeviceBuffer:
    """One tensor's bytes in the slab, from `start` to `stop`, and its red zones, which end at `limit`."""

    item: Item
    start: int
    limit: int
    view: Tensor
    """The tensor, with its layout's strides."""
    bits: Tensor
    """The same as integers; of a broadcast one its first row."""
    before: Array
    """What must stand in the zone before it, and behind it up to the limit."""
    behind: Array

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.item.name

    @property
    def stop(self) -> int:
        """Address where its bytes end."""
        return self.start + self.item.nbytes


class DeviceMemory:
    """The memory of one case on one device."""

    def __init__(self, case: Case, outputs: dict[str, TensorSpec], device: str) -> None:
        """Raises what torch raises where there is no room."""
        self.device, self._recipes = device, case.tensors
        plan = planned(case.tensors, outputs)
        room = torch.empty((plan[-1][2] if plan else 0) + ALIGNMENT, dtype=torch.uint8, device=device)
        self._slab = room[-room.data_ptr() % ALIGNMENT :]
        self.buffers = [self._place(number, *place) for number, place in enumerate(plan)]
        self._slab.fill_(GAP)
        self._dirty = {b.name for b in self.inputs}
        """Inputs that may have changed since they were made."""
        self.reset(0)

    @property
    def inputs(self) -> list[DeviceBuffer]:
        """Buffers of the inputs, in order."""
        return [b for b in self.buffers if not b.item.is_output]

    @property
    def outputs(self) -> list[DeviceBuffer]:
        """Buffers of the outputs, in order."""
        return [b for b in self.buffers if b.item.is_output]

    def _place(self, number: int, item: Item, start: int, limit: int) -> DeviceBuffer:
        fmt = format_of(item.dtype)
        first = int(self._slab.storage_offset()) + start + item.offset
        strides = [s // item.dtype.itemsize for s in item.strides]
        storage = self._slab.untyped_storage()

        def over(dtype: torch.dtype) -> Tensor:
            made = torch.empty(0, dtype=dtype, device=self.device)
            return made.set_(storage, first // item.dtype.itemsize, item.shape, strides)

        bits = over(CARRIERS[fmt.bits])
        before, behind = patterns(number)
        rest = np.full(limit - start - item.nbytes - ZONE, GAP, np.uint8)
        once = bits[:1] if strides[:1] == [0] else bits
        return DeviceBuffer(item, start, limit, over(dtype_of(fmt)), once, before, np.concatenate([behind, rest]))

    def reset(self, run: int) -> None:
        """Make it as it must be before run 0 or 1."""
        for b in self.buffers:
            self._slab[b.start - ZONE : b.start] = self._sent(b.before)
            self._slab[b.stop : b.limit] = self._sent(b.behind)
            if b.item.is_output:
                self._slab[b.start : b.stop] = POISONS[run]
            elif b.name in self._dirty:
                self._slab[b.start : b.stop] = GAP
                b.bits.copy_(self._made(b))
        self._dirty = {b.name for b in self.inputs}  # until it is known better

    def _sent(self, values: Array) -> Tensor:
        return torch.from_numpy(values.copy()).to(self.device)

    def _made(self, b: DeviceBuffer) -> Tensor:
        """The bits of an input, anew."""
        recipe: TensorRecipe = self._recipes[b.name]
        values = materialize(recipe, self.device)
        return (values[:1] if len(b.bits.shape) and b.bits.shape != b.view.shape else values).view(b.bits.dtype)

    def tensors(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The inputs by name, and the outputs in order."""
        return {b.name: b.view for b in self.inputs}, [b.view for b in self.outputs]

    def damage(self, run: int = 0) -> tuple[list[GuardDamage], list[str]]:
        """Find what was written where nothing may be: red zones and gaps, and the names of changed inputs."""
        del run
        damage: list[GuardDamage] = []
        mutated: list[str] = []
        dirty: set[str] = set()
        for b in self.buffers:
            damage += self._zone_damage(b)
            if b.item.is_output or not b.item.nbytes:
                continue
            gaps = self._gap_damage(b)
            damage += gaps
            if not torch.equal(b.bits, self._made(b)):
                mutated.append(b.name)
            if gaps or b.name in mutated:
                dirty.add(b.name)
        self._dirty = dirty
        return damage, mutated

    def _zone_damage(self, b: DeviceBuffer) -> list[GuardDamage]:
        found = []
        pairs = (self._slab[b.start - ZONE : b.start], b.before), (self._slab[b.stop : b.limit], b.behind)
        before, behind = (np.flatnonzero(seen.cpu().numpy() != due) for seen, due in pairs)
        if before.size:
            found.append(GuardDamage(buffer=b.name, offset=int(before[-1]) - ZONE, count=int(before.size)))
        if behind.size:
            found.append(GuardDamage(buffer=b.name, offset=b.item.nbytes + int(behind[0]), count=int(behind.size)))
        return found

    def _gap_damage(self, b: DeviceBuffer) -> list[GuardDamage]:
        """Find damaged bytes of the buffer that no element lies on."""
        if b.bits.numel() * b.item.dtype.itemsize == b.item.nbytes:
            return []
        gaps = self._slab[b.start : b.stop] != GAP
        shape, strides = (*b.item.shape, b.item.dtype.itemsize), (*b.item.strides, 1)
        if b.view.numel():
            gaps.as_strided(shape, strides, b.item.offset).fill_(False)
        count = int(gaps.sum())
        first = int(gaps.to(torch.uint8).argmax()) if count else 0
        return [GuardDamage(buffer=b.name, offset=first, count=count)] if count else []

    def holds(self, address: int) -> str:
        """The name of the buffer an address points into, or an empty string."""
        at = address - int(self._slab.data_ptr())
        return next((b.name for b in self.buffers if b.start <= at < max(b.stop, b.start + 1)), "")

    def rows_digest(self, case: Case) -> str:
        """Digest the inputs as they are here, as corpus.inputs.fingerprint.rows_digest does."""
        found: dict[str, Array] = {}
        views: Mapping[str, Tensor] = {b.name: b.bits for b in self.inputs}
        for name, picked in rows_of(case).items():
            some = views[name]
            for axis, indices in picked.items():
                whole = some.shape[axis] == self._recipes[name].shape[axis]
                some = some.index_select(axis, torch.from_numpy(indices if whole else 0 * indices).to(self.device))
            found[name] = on_host(some, self._recipes[name].dtype)
        return digest(found)


def on_host(bits: Tensor, dtype: str) -> Array:
    """A tensor of bit patterns as an array of one of our dtypes, C-contiguous."""
    array: Array = bits.contiguous().cpu().numpy()
    return array.view(FORMATS[dtype].dtype)
