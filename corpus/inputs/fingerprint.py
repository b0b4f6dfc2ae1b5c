"""A digest of a few elements of a case's inputs, for whoever makes all of a large case and whoever makes parts of it.

A recipe that came to mean something else, or that a device makes differently, is noticed by it without a second whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.inputs.materialize import digest
from kernel_assay.corpus.inputs.slices import Indices, taken
from kernel_assay.corpus.model.case import Case

EDGE = 32
"""Elements at either end of a row."""
CHANCE = 2
"""Indices of every axis that are chosen by chance, beside the ends."""


def rows_of(case: Case) -> dict[str, dict[int, Indices]]:
    """Indices of each axis of every input that are digested; the case decides."""
    random = Random(f"{case.id}:rows")
    return {
        name: {axis: _some(t.shape, axis, random) for axis in range(len(t.shape))} for name, t in case.tensors.items()
    }


def _some(shape: tuple[int, ...], axis: int, random: Random) -> Indices:
    extent, edge = shape[axis], EDGE if axis == len(shape) - 1 else 1
    ends = {*range(min(edge, extent)), *range(max(0, extent - edge), extent)}
    return np.array(sorted(ends | {random.randrange(extent) for _ in range(CHANCE if extent else 0)}), np.int64)


def rows_digest(case: Case) -> str:
    """The digest, from the recipes alone. Raises UsageError as materialize does."""
    return digest({name: taken(case.tensors[name], picked) for name, picked in rows_of(case).items()})


def rows_digest_of(case: Case, inputs: Mapping[str, Array]) -> str:
    """The same of the inputs as they were made, host arrays of the whole."""
    found = {}
    for name, picked in rows_of(case).items():
        found[name] = inputs[name]
        shape = found[name].shape
        for axis in sorted(picked, key=lambda a: len(picked[a]) / max(1, shape[a])):
            found[name] = np.take(found[name], picked[axis], axis)
    return digest(found)
