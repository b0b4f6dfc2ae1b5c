"""Guarded memory of a large case on the host: inputs are made in it piece by piece, and no second image of it is kept.

The image is a file in memory, and the slab a private view of it: what no run has written lies in memory once. So a case
takes its inputs, its outputs, and what is kept of the first run, and no more.
"""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.slices import made_in_pieces
from kernel_assay.corpus.model.case import TensorRecipe
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.kernels.backends.support.guard import GAP, POISONS, ZONE, Bytes, Guarded, planned

SPARE = 1 << 28
"""Bytes that are left to everything else on the machine."""


class Mapped(Guarded):
    """The memory of one large case."""

    def __init__(self, recipes: Mapping[str, TensorRecipe], outputs: dict[str, TensorSpec]) -> None:
        """Raises MemoryError where there is no room."""
        self._recipes = dict(recipes)
        plan = planned(self._recipes, outputs)
        _check_room(plan[-1][2] if plan else 0, sum(item.nbytes for item, _, _ in plan if item.is_output))
        super().__init__(self._recipes, dict.fromkeys(self._recipes, np.empty(0)), outputs)

    def _room(self, size: int) -> Bytes:
        """Map the slab, and the image beside it. Raises MemoryError."""
        file = os.memfd_create("image")
        try:
            os.ftruncate(file, max(1, size))
            self._image = np.frombuffer(mmap.mmap(file, max(1, size)), np.uint8)[:size]
            self._private = mmap.mmap(file, max(1, size), flags=mmap.MAP_PRIVATE)
        except OSError as error:
            raise MemoryError(str(error)) from error
        finally:
            os.close(file)
        return np.frombuffer(self._private, np.uint8)[:size]

    def _build_images(self, inputs: Mapping[str, Array]) -> list[Bytes]:
        del inputs
        begin = 0
        for i, b in enumerate(self.buffers):
            self._image[begin : b.start] = GAP
            if not b.is_output:
                self._image[b.start : b.stop] = GAP
                view = np.ndarray(b.view.shape, b.view.dtype, self._image.data, b.start + b.offset, b.view.strides)
                for piece, values in made_in_pieces(self._recipes[b.name]):
                    view[piece] = values
            self._zone(self._image, i)
            begin = b.stop + ZONE
        self._image[begin:] = GAP
        return [self._image] * len(POISONS)

    def reset(self, run: int) -> None:
        """Make the slab as it must be before run 0 or 1."""
        self._private.madvise(mmap.MADV_DONTNEED)  # what was written is forgotten, and the image shows
        for b in self.outputs:
            self._slab[b.start : b.stop] = POISONS[run]


def _check_room(size: int, kept: int) -> None:
    """Raises MemoryError without room for a slab of that size, as much again for a subject, and what is kept."""
    limit, used = resource.getrlimit(resource.RLIMIT_DATA)[0], _said("/proc/self/status", "VmData:")
    if limit != resource.RLIM_INFINITY and used + 2 * size > limit:
        raise MemoryError(f"{2 * size >> 20} MiB are more than is left of {limit >> 20}")
    if size + kept + SPARE > _said("/proc/meminfo", "MemAvailable:"):  # nothing else bounds files in memory
        raise MemoryError(f"{(size + kept) >> 20} MiB are more than the machine has left")


def _said(path: str, word: str) -> int:
    """Bytes of a line of the system's."""
    lines = Path(path).read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(word))
