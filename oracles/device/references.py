"""What an op's formula gives in float64, at every element of a large case, made where the outputs are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from corpus.materialize import materialize
from corpus.records import Case, TensorRecipe

Formula = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Inputs in float64 by name -> outputs in float64 by name."""


def _silu(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"out": inputs["x"] / (1.0 + torch.exp(-inputs["x"]))}


FORMULAS: dict[str, Formula] = {"silu": _silu}
"""By op."""


def reference_on(case: Case, device: str) -> dict[str, Tensor] | None:
    """Contiguous float64 tensors by the names of the outputs; None if the op has none, or there is no room."""
    formula = FORMULAS.get(case.op)
    if formula is None:
        return None
    try:
        inputs = {name: _input(recipe, device) for name, recipe in case.tensors.items()}
        return {name: values.contiguous() for name, values in formula(inputs).items()}
    except torch.OutOfMemoryError:
        return None


def _input(recipe: TensorRecipe, device: str) -> Tensor:
    """In float64. All formats but int64 fit into it."""
    return torch.from_numpy(materialize(recipe).astype("float64")).to(device)
