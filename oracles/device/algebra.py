"""The algebra of products where inputs and outputs lie: oracles/freivalds.py on a device, by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from corpus.errors import UsageError
from corpus.materialize import materialize
from corpus.records import Case, Subject, TensorRecipe
from corpus.share import Share
from oracles.catalog import contract_of
from oracles.freivalds import Library, Product, algebra, worst

OPS = frozenset({"gemm", "gemm_int8"})
"""Products of two matrices of numbers."""


@dataclass(frozen=True, slots=True)
class Summed:
    """What the sums of the rows of an output say."""

    share: Share
    places: tuple[int, ...]
    """Flat indices of elements that the oracle must judge."""


def algebra_on(case: Case, subject: Subject, held: Mapping[str, Tensor], device: str) -> Summed | None:
    """Check every row of a product that a subject left.

    held: its output by name, `out`, on the device. None if the op is no such product, or there is no room.
    """
    if case.op not in OPS:
        return None
    library = Library(
        lambda slab: slab.double(), lambda vector: torch.from_numpy(vector).to(device), lambda v: v.cpu().numpy()
    )
    try:
        inputs = {name: _input(recipe, device) for name, recipe in case.tensors.items()}
        product = Product(contract_of(case.op), case, inputs, held["out"], library)
        found = algebra(product, subject.numerics)
        places = tuple(worst(product, found))
    except (torch.OutOfMemoryError, UsageError):
        return None
    return Summed(Share(output="out", of=held["out"].numel(), algebra=found.elements), places)


def _input(recipe: TensorRecipe, device: str) -> Tensor:
    return torch.from_numpy(np.asarray(materialize(recipe), np.float64)).to(device)
