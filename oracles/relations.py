"""Laws that several ops share: how a case is changed, and what that does to the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpus.distributions import DISTRIBUTIONS
from corpus.records import Case, TensorRecipe
from oracles.contract import Law


def scaled(name: str, tensors: Mapping[str, float], *, factor: float) -> Law:
    """The law: multiplying these inputs by these powers of two (or -1) multiplies the outputs by factor."""

    def transform(case: Case) -> Case | None:
        changed = {n: _changed(case, n, scale=case.tensors[n].fill.scale * by) for n, by in tensors.items()}
        return _with(case, changed)

    return Law(name=name, transform=transform, factor=factor)


def shifted(name: str, tensor: str, by: int) -> Law:
    """The law: adding an integer to every value of an input changes nothing."""

    def transform(case: Case) -> Case | None:
        fill = case.tensors[tensor].fill
        if fill.scale != 1.0:
            return None
        return _with(case, {tensor: _changed(case, tensor, params={**fill.params, "shift": by})})

    return Law(name=name, transform=transform, shift=float(by))


def moved(name: str, tensor: str) -> Law:
    """The law: the same values elsewhere in memory, with other neighbours, give the same bits."""

    def transform(case: Case) -> Case | None:
        recipe = case.tensors[tensor]
        if recipe.layout != "contiguous":
            return None
        return case.but(tensors={**case.tensors, tensor: recipe.but(layout="offset_room")})

    return Law(name=name, transform=transform)


def _changed(case: Case, tensor: str, **fill: Any) -> TensorRecipe | None:
    """The tensor with another fill; None where values are written bit by bit and would not follow."""
    recipe = case.tensors[tensor]
    if recipe.specials or recipe.pokes or DISTRIBUTIONS[recipe.fill.distribution].patterns:
        return None
    return recipe.but(fill=recipe.fill.but(**fill))


def _with(case: Case, changed: Mapping[str, TensorRecipe | None]) -> Case | None:
    tensors = {n: t for n, t in changed.items() if t is not None}
    return case.but(tensors={**case.tensors, **tensors}) if len(tensors) == len(changed) else None
