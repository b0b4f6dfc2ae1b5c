"""Guarded memory for one case: every buffer between red zones, outputs poisoned, everything compared afterwards.

All buffers lie in one slab. An image of how the slab must look before a run is kept for each of the two poisons; a run
starts from a copy of the image, and afterwards everything but the outputs must still equal it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.field import hashed
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.case import TensorRecipe
from kernel_assay.corpus.model.execution import GuardDamage
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.kernels.backends.support.walls import Walled

Bytes = NDArray[np.uint8]

ZONE = 256
"""Bytes of red zone on either side of a buffer."""
ALIGNMENT = 256
"""What device allocators promise; a buffer starts at a multiple of it."""
POISONS = (0xFF, 0xA5)
"""Filled into the outputs before the first and before the second run. 0xFF.. is NaN in every float format."""
GAP = 0xFF
"""Filled into what a strided input skips: reading it shows as NaN."""
_PATTERNS = hashed(0x5EED, (0, 0), (64, ZONE // 8)).view(np.uint8)

_libc = ctypes.CDLL(None)
_memcmp = _libc.memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(slots=True)
class Buffer:
    """One tensor's bytes in the slab: `start` to `stop`, without the zones."""

    name: str
    is_output: bool
    start: int
    stop: int
    view: Array
    """The tensor in the slab, with its layout's strides."""
    offset: int
    """Bytes from `start` to the tensor's first element."""
    limit: int
    """Where the red zone behind it ends, and with it what belongs to this buffer."""


class Guarded:
    """The memory of one case."""

    def __init__(
        self,
        recipes: dict[str, TensorRecipe],
        inputs: dict[str, Array],
        outputs: dict[str, TensorSpec],
        walled: Walled | None = None,
        lent: Bytes | None = None,
    ) -> None:
        """walled: where the inputs lie, if not here. lent: bytes to lie in, if they are enough."""
        plan = planned({} if walled else {name: recipes[name] for name in inputs}, outputs)
        self.walled, self._lent = walled, lent
        self._slab = self._room(plan[-1][2] if plan else 0)
        self.buffers = [_place(item, self._slab, start, limit) for item, start, limit in plan]
        self._images = self._build_images(inputs)
        self._address = int(self._slab.ctypes.data)

    def _room(self, size: int) -> Bytes:
        """Bytes whose address is a multiple of ALIGNMENT (so that every start is, ZONE being one too)."""
        wanted, lent = size + ALIGNMENT, self._lent
        room = lent if lent is not None and lent.size >= wanted else np.empty(wanted, np.uint8)
        skip = -int(room.ctypes.data) % ALIGNMENT
        return room[skip : skip + size]

    def _zone(self, slab: Bytes, number: int) -> None:
        """Write the red zones of a buffer."""
        b = self.buffers[number]
        slab[b.start - ZONE : b.start], slab[b.stop : b.stop + ZONE] = patterns(number)

    def _build_images(self, inputs: dict[str, Array]) -> list[Bytes]:
        self._slab[:] = GAP
        for i, b in enumerate(self.buffers):
            self._zone(self._slab, i)
            if not b.is_output and b.view.size:
                target = b.view[:1] if b.view.strides[:1] == (0,) else b.view
                target[...] = inputs[b.name][: len(target)] if target.ndim else inputs[b.name]
        images = []
        for poison in POISONS:
            for b in self.outputs:
                self._slab[b.start : b.stop] = poison
            images.append(self._slab.copy())
        return images

    @property
    def slab(self) -> Bytes:
        """All of it."""
        return self._slab

    @cached_property
    def outputs(self) -> list[Buffer]:
        """The output buffers in order."""
        return [b for b in self.buffers if b.is_output]

    @cached_property
    def inputs(self) -> list[Buffer]:
        """The input buffers in order."""
        return [b for b in self.buffers if not b.is_output]

    @cached_property
    def _image_at(self) -> list[int]:
        """Addresses of the images: numpy takes a microsecond to tell one."""
        return [int(image.ctypes.data) for image in self._images]

    def reset(self, run: int) -> None:
        """Make the slab as it must be before run 0 or 1."""
        np.copyto(self._slab, self._images[run])

    def holds(self, address: int) -> str:
        """The name of the buffer an address points into, or an empty string."""
        at = address - self._address
        here = next((b.name for b in self.buffers if b.start <= at < max(b.stop, b.start + 1)), "")
        return here or (self.walled.holds(address) if self.walled else "")

    def tensors(self) -> tuple[dict[str, Array], list[Array]]:
        """The inputs by name, wherever they lie, and the outputs in order."""
        return self.walled.views if self.walled else {b.name: b.view for b in self.inputs}, [
            b.view for b in self.outputs
        ]

    def intact(self, run: int) -> bool:
        """Whether everything but the outputs is as it was before the run."""
        begin = 0
        for b in self.outputs:
            if self._differs(run, begin, b.start):
                return False
            begin = b.stop
        return not self._differs(run, begin, self._slab.size)

    def _differs(self, run: int, start: int, stop: int) -> bool:
        """Whether these bytes of the slab are others than the image's."""
        return bool(_memcmp(self._address + start, self._image_at[run] + start, stop - start))

    def damage(self, run: int) -> tuple[list[GuardDamage], list[str]]:
        """Find what was written where nothing may be: red zones and gaps, and the names of changed inputs."""
        if self.intact(run):
            return [], []
        image = self._images[run]
        damage: list[GuardDamage] = []
        mutated: list[str] = []
        for b in self.buffers:
            damage += _zone_damage(b, self._slab, image)
            if b.is_output or not self._differs(run, b.start, b.stop):
                continue
            if b.view.nbytes == b.stop - b.start:
                mutated.append(b.name)
                continue
            changed = self._slab[b.start : b.stop] != image[b.start : b.stop]
            gaps = _gap_bytes(b) & changed
            if gaps.any():
                damage.append(GuardDamage(buffer=b.name, offset=int(np.argmax(gaps)), count=int(gaps.sum())))
            if (changed & ~gaps).any():
                mutated.append(b.name)
        return damage, mutated


@dataclass(slots=True)
class Item:
    """A tensor that needs a buffer; sizes, offsets and strides in bytes."""

    name: str
    is_output: bool
    nbytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]
    free: int
    """Kept free before the zone and the buffer."""


def planned(recipes: dict[str, TensorRecipe], outputs: dict[str, TensorSpec]) -> list[tuple[Item, int, int]]:
    """Every tensor, inputs first, with the place in a slab where its buffer begins, and where its last zone ends."""
    plan = [_item(name, recipe, is_output=False) for name, recipe in recipes.items()]
    plan += [_item(name, spec, is_output=True) for name, spec in outputs.items()]
    starts, ends = [], [0]
    for item in plan:
        starts.append(ends[-1] + ZONE + item.free)
        ends.append(-(-(starts[-1] + item.nbytes + ZONE) // ALIGNMENT) * ALIGNMENT)
    limits = [start - ZONE for start in starts[1:]] + ends[-1:]
    return list(zip(plan, starts, limits, strict=False))


def patterns(number: int) -> tuple[Bytes, Bytes]:
    """Patterns of the zones before and behind a buffer."""
    return _PATTERNS[2 * number % 64], _PATTERNS[(2 * number + 1) % 64]


def _item(name: str, tensor: TensorRecipe | TensorSpec, *, is_output: bool) -> Item:
    """The item with what an output's layout keeps free before it, where nobody may write."""
    dtype = format_of(tensor.dtype).dtype
    at = LAYOUTS[tensor.layout](tensor.shape)
    size = dtype.itemsize
    free, offset = (at.offset, 0) if is_output else (0, at.offset)
    strides = tuple(s * size for s in at.strides)
    return Item(name, is_output, (at.length - free) * size, tensor.shape, dtype, offset * size, strides, free * size)


def _place(item: Item, slab: Bytes, start: int, limit: int) -> Buffer:
    view = np.ndarray(item.shape, item.dtype, buffer=slab.data, offset=start + item.offset, strides=item.strides)
    return Buffer(item.name, item.is_output, start, start + item.nbytes, view, item.offset, limit)


def _zone_damage(b: Buffer, slab: Bytes, image: Bytes) -> list[GuardDamage]:
    found = []
    zones = slice(b.start - ZONE, b.start), slice(b.stop, b.limit)
    before, after = (np.flatnonzero(slab[zone] != image[zone]) for zone in zones)
    if before.size:
        found.append(GuardDamage(buffer=b.name, offset=int(before[-1]) - ZONE, count=int(before.size)))
    if after.size:
        found.append(GuardDamage(buffer=b.name, offset=b.stop - b.start + int(after[0]), count=int(after.size)))
    return found


def _gap_bytes(b: Buffer) -> NDArray[np.bool_]:
    """Bytes of a buffer that no element of the tensor lies on."""
    gaps = np.ones(b.stop - b.start, np.bool_)
    if b.view.size:
        shape, strides = (*b.view.shape, b.view.itemsize), (*b.view.strides, 1)
        np.ndarray(shape, np.bool_, buffer=gaps.data, offset=b.offset, strides=strides)[...] = False
    return gaps
