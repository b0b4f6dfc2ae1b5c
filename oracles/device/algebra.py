"""The algebra of products where inputs and outputs lie: oracles/large/freivalds.py on a device, by torch.

Inputs are made there from the recipe, whole; nothing but vectors comes to the host. The signs, the tolerance and the
code are those of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.torch.recipes import ROOM, materialize
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.device.slabs import bytes_of_inputs, free_on, wide
from kernel_assay.oracles.large import freivalds
from kernel_assay.oracles.large.freivalds import Library, Product, algebra, worst
from kernel_assay.oracles.spec.contract import Reals

STEPS = 8
"""Tensors of a slab of freivalds.SLAB in float64 that live at a time, at most."""


@dataclass(frozen=True, slots=True)
class Summed:
    """Results of the sums of an output's rows; plain numbers, which may be sent to another process."""

    share: Share
    """How many elements were looked at: those of all rows but the ones left out."""
    rows: tuple[int, ...]
    """That hold a wrong element, the worst first."""
    places: tuple[int, ...]
    """Flat indices of the elements of such rows that are farthest off, for large.parts.around: the oracle decides."""
    rho: float
    """The largest distance of a row by its tolerance, of those that are known; 0 of none."""
    left_out: int
    """Rows of which nothing is known, as they hold NaN or Inf."""


def algebra_on(case: Case, subject: Subject, held: Mapping[str, Tensor], device: str) -> Summed | None:
    """Check every row of a product that a subject left.

    held: its output by name, `out`, of the right form, on the device: "cpu", "cuda" or "cuda:<index>". None if the op
    is no such product, or its contract a user's own, or there is no room for inputs on the device, or a sum of integers
    is more than float64 holds. Raises what materialize raises.
    """
    if case.op not in load_contracts() or contract_of(case.op).origin or not contract_of(case.op).product:
        return None
    if _room_of(case) > free_on(device):
        return None
    try:
        inputs = {name: materialize(recipe, device) for name, recipe in case.tensors.items()}
        product = Product(contract_of(case.op), case, inputs, held["out"], library_on(device))
        found = algebra(product, subject.numerics)
        places = tuple(worst(product, found))
    except (torch.OutOfMemoryError, UsageError):
        return None
    share = Share(output="out", of=held["out"].numel(), algebra=found.elements)
    known = found.rho[~np.isnan(found.rho)]
    return Summed(share, tuple(found.suspects.tolist()), places, float(known.max(initial=0.0)), found.left_out)


def library_on(device: str) -> Library:
    """Library in which matrices of torch become float64, and vectors of numpy some on the device."""

    def given(vector: Reals) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(vector)).to(device)

    def told(vector: Tensor) -> Reals:
        return np.asarray(vector.cpu().numpy(), np.float64)

    return Library(lambda slab: wide(slab).double(), given, told)


def _room_of(case: Case) -> int:
    """Bytes beside the output: inputs, and what making them or a slab takes."""
    widest = max(t.shape[-1] for t in case.tensors.values())
    return bytes_of_inputs(case) + max(ROOM, STEPS * 8 * max(freivalds.SLAB, widest))
