"""Laws that several ops share: how a case is changed, and what that does to the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.oracles.spec.contract import Groups, Invariant, Law, Question, View

EITHER = 2.0
"""Error budgets that two right results may be apart: each is within one."""

Axes = Mapping[str, int]
"""For each input that has a dimension, which of its axes; inputs that a case does not have are left out."""


def scaled(name: str, tensors: Mapping[str, float], *, factor: float) -> Law:
    """The law: multiplying these inputs by these powers of two (or -1) multiplies the outputs by factor.

    Inputs that a case does not have are left out.
    """

    def transform(case: Case) -> Case | None:
        present = {n: by for n, by in tensors.items() if n in case.tensors}
        changed = {n: _changed(case, n, scale=case.tensors[n].fill.scale * by) for n, by in present.items()}
        return _with(case, changed)

    return Law(name=name, transform=transform, factor=factor)


def shifted(name: str, tensor: str, by: int, *, within: float = EITHER) -> Law:
    """The law: adding an integer to every value of an input changes nothing but how each is rounded on its way.

    Who subtracts the maximum first has the same bits; who multiplies both by log2(e) before has not, and is right.
    """

    def transform(case: Case) -> Case | None:
        fill = case.tensors[tensor].fill
        if fill.scale != 1.0:
            return None
        return _with(case, {tensor: _changed(case, tensor, params={**fill.params, "shift": by})})

    return Law(name=name, transform=transform, within=within)


def moved(name: str, tensor: str) -> Law:
    """The law: the same values elsewhere in memory, with other neighbours, give the same bits."""

    def transform(case: Case) -> Case | None:
        recipe = case.tensors[tensor]
        if recipe.layout != "contiguous":
            return None
        return case.but(tensors={**case.tensors, tensor: recipe.but(layout="offset_room")})

    return Law(name=name, transform=transform)


def doubled(name: str, attrs: Mapping[str, Scalar], *, within: float = EITHER) -> Law:
    """The law: twice these attributes (those that a case leaves out are as given here) make the outputs twice as large.

    It does not apply where one of them is 0, which says that something is not read at all. A library may take another
    path where one of them is 1, with sums in another order or a product that is fused into one: EITHER result is right.
    """

    def transform(case: Case) -> Case | None:
        now = {n: float(case.attrs.get(n, value)) for n, value in attrs.items()}
        return case.but(attrs={**case.attrs, **{n: 2.0 * x for n, x in now.items()}}) if all(now.values()) else None

    return Law(name=name, transform=transform, factor=2.0, within=within)


def alone(name: str, axes: Axes, *, out: int = 0, within: float = EITHER) -> Law:
    """The law: the last index of a dimension gives alone what it gives among the others.

    out: the axis of the outputs that counts it.
    """

    def transform(case: Case) -> Case | None:
        last = _extent(case, axes) - 1
        return _each(case, axes, lambda recipe, axis: _cut(recipe, axis, last, 1)) if last > 0 else None

    return Law(name=name, transform=transform, view=lambda _: _along(out, slice(-1, None)), within=within)


def prefix(name: str, axes: Axes, *, out: int, within: float = EITHER) -> Law:
    """The law: without the end of these axes, as much of each of them, what stands before it stays as it is.

    out: the axis of the outputs that is cut; it is the first one's.
    """

    def less(case: Case) -> int:
        return min(case.tensors[n].shape[axis] for n, axis in axes.items() if n in case.tensors) // 2

    def transform(case: Case) -> Case | None:
        end = less(case)
        return _each(case, axes, lambda r, axis: _cut(r, axis, 0, r.shape[axis] - end)) if end else None

    return Law(name=name, transform=transform, view=lambda case: _along(out, slice(0, -less(case))), within=within)


def reversed_along(name: str, axes: Axes, *, out: int | None = None, within: float = EITHER) -> Law:
    """The law: with a dimension in reverse order, so are the outputs along the axis `out`; None: they stay as they are.

    None is for a dimension that is summed over.
    """

    def transform(case: Case) -> Case | None:
        return _each(case, axes, _flipped) if _extent(case, axes) > 1 else None

    view = None if out is None else (lambda _: _along(out, slice(None, None, -1)))
    return Law(name=name, transform=transform, view=view, within=within)


def row_sums(name: str, wanted: float, output: str = "out") -> Invariant:
    """The law: each row of an output, all along its last axis, has this sum."""

    def groups(q: Question) -> Groups:
        *rows, columns = q.want[output].shape
        starts = np.arange(math.prod(rows), dtype=np.int64).reshape(rows) * columns
        return Groups(starts=starts, step=1, count=columns, wanted=wanted)

    return Invariant(name=name, of="sum", each="row", groups=groups, output=output)


def only_if(holds: Callable[[Case], bool], law: Law) -> Law:
    """The law, for cases of which this is true."""
    return replace(law, transform=lambda case: law.transform(case) if holds(case) else None)


def _along(axis: int, part: slice) -> View:
    return (*(slice(None),) * axis, part)


def _extent(case: Case, axes: Axes) -> int:
    return next(case.tensors[n].shape[axis] for n, axis in axes.items() if n in case.tensors)


def _each(case: Case, axes: Axes, change: Callable[[TensorRecipe, int], TensorRecipe | None]) -> Case | None:
    return _with(case, {n: change(case.tensors[n], axis) for n, axis in axes.items() if n in case.tensors})


def _cut(recipe: TensorRecipe, axis: int, start: int, count: int) -> TensorRecipe | None:
    """The part of a tensor from one index of an axis on; None where special values would stay at their places."""
    if recipe.specials:
        return None
    repeats = axis == 0 and recipe.layout == "broadcast"  # all rows are the first one of the window
    shape, origin = list(recipe.shape), list(recipe.origin or (0,) * len(recipe.shape))
    shape[axis], origin[axis] = count, origin[axis] + (0 if repeats else start)
    pokes = recipe.pokes if repeats else _pokes_within(recipe, axis, start, count)
    return recipe.but(shape=tuple(shape), origin=tuple(origin), pokes=pokes)


def _pokes_within(recipe: TensorRecipe, axis: int, start: int, count: int) -> tuple[tuple[int, int], ...]:
    """Elements that are written out follow, or are cut off."""
    shape = (*recipe.shape[:axis], count, *recipe.shape[axis + 1 :])
    kept = []
    for flat, bits in recipe.pokes:
        at = [int(i) for i in np.unravel_index(flat, recipe.shape)] if flat < recipe.size else []
        if at and start <= at[axis] < start + count:
            at[axis] -= start
            kept.append((int(np.ravel_multi_index(at, shape)), bits))
    return tuple(kept)


def _flipped(recipe: TensorRecipe, axis: int) -> TensorRecipe | None:
    if "flip" in recipe.fill.params:
        return None
    return recipe.but(fill=recipe.fill.but(params={**recipe.fill.params, "flip": axis}))


def _changed(case: Case, tensor: str, **fill: Any) -> TensorRecipe | None:
    """The tensor with another fill; None where values are written bit by bit and would not follow."""
    recipe = case.tensors[tensor]
    if recipe.specials or recipe.pokes or DISTRIBUTIONS[recipe.fill.distribution].patterns:
        return None
    return recipe.but(fill=recipe.fill.but(**fill))


def _with(case: Case, changed: Mapping[str, TensorRecipe | None]) -> Case | None:
    tensors = {n: t for n, t in changed.items() if t is not None}
    return case.but(tensors={**case.tensors, **tensors}) if len(tensors) == len(changed) else None
