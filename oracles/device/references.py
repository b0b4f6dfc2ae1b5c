"""References for a large case at every element, in float64, where its outputs are judged.

A peer that is right: a subject that runs alone is compared with it as with another subject (oracles/large/peers.py),
and what looks suspicious the ordinary oracle decides. So nothing fails by it, and its last bits do not matter.
Inputs are made on the device from the recipe, so nothing crosses a bus. Of float64 inputs it is a peer of the same
precision: what leaves the range of float64 on the way may be Inf, NaN or 0 here, and is a number to the contract, which
has longdouble.
"""

from __future__ import annotations

import math
from importlib import import_module

import torch
from torch import Tensor

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.torch.field import dtype_of
from kernel_assay.corpus.inputs.torch.recipes import ROOM, materialize
from kernel_assay.corpus.model.case import Case
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.device import slabs
from kernel_assay.oracles.device.slabs import Formula, bytes_of_inputs, free_on
from kernel_assay.oracles.spec.contract import Contract

STEPS = 8
"""Tensors of a slab in float64 that live at a time, at most; a test counts them for every op."""


def formula_of(contract: Contract) -> Formula | None:
    """The formula that a contract names; None if it names none: several outputs are right everywhere (quantize)."""
    module, _, name = contract.on_device.partition(".")
    return vars(import_module(f"{__package__}.{module}"))[name] if name else None


FORMULAS = {contract.name: made for contract in load_contracts().values() if (made := formula_of(contract)) is not None}
"""Op -> how its output, `out`, is computed."""


def reference_on(case: Case, device: str) -> dict[str, Tensor] | None:
    """The outputs of a case by name, contiguous: float64, but of an op that only moves bits, of the output's dtype.

    device: "cpu", "cuda" or "cuda:<index>". None if the op has no formula here, or its contract is a user's own, which
    may mean something else by the name, or there is no room on the device. Raises what materialize raises.
    """
    formula = FORMULAS.get(case.op)
    if formula is None or case.op not in load_contracts() or contract_of(case.op).origin:
        return None
    if room_of(case) > free_on(device):
        return None
    contract = contract_of(case.op)
    spec = contract.output_specs(case)["out"]
    dtype = dtype_of(format_of(spec.dtype)) if contract.copies else torch.float64
    try:
        inputs = {name: materialize(recipe, device) for name, recipe in case.tensors.items()}
        out = torch.empty(spec.shape, dtype=dtype, device=device)
        if out.numel():
            formula.fill(inputs, contract.attrs_of(case), out)
    except torch.OutOfMemoryError:  # it is there, but not in one piece
        return None
    return {"out": out}


def room_of(case: Case) -> int:
    """Bytes that `reference_on` takes at most, on any device, with the result. Raises UsageError for an unknown op."""
    contract = contract_of(case.op)
    least = FORMULAS[case.op].least(contract.dims_of(case)) if case.op in FORMULAS else 0
    work = STEPS * 8 * max(slabs.SLAB, least)
    return bytes_of_inputs(case) + _outputs(contract, case) + max(work, ROOM)


def _outputs(contract: Contract, case: Case) -> int:
    return sum(8 * math.prod(spec.shape) for spec in contract.output_specs(case).values())
