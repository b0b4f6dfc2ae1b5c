"""Some rows, columns or blocks of a tensor, straight from its recipe: the tensor as a whole is never made.

A recipe is a window on a random field, so a part of it is a smaller window further on: indices that follow one another
are made as one. Every distribution looks at coordinates alone, also those of packed blocks; none needs the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.field import Window
from kernel_assay.corpus.inputs.materialize import exceptions, flip_of, materialize, unrepeated, window_of
from kernel_assay.corpus.inputs.structures import structure_of
from kernel_assay.corpus.model.case import TensorRecipe

Indices = NDArray[np.int64]
Picked = Mapping[int, Sequence[int] | Indices]
"""For axes of a tensor, which of their indices, in which order; of the other axes all."""
Piece = tuple[slice, ...]

AT_ONCE = 1 << 18
"""Elements of a large tensor that are made at once: their words and numbers stay in a processor's caches."""

WINDOW_COST = 1 << 14
"""What it takes to make a window, in elements that could be made instead."""


def taken(recipe: TensorRecipe, picked: Picked) -> Array:
    """Elements as np.take gives them of the materialized tensor along each of these axes: the same bytes, C-contiguous.

    Indices may repeat and come in any order. Raises UsageError as materialize does, for an axis that the tensor does
    not have, and for an index outside of it; there are no negative ones.
    """
    kept = {axis: _checked(recipe, axis, indices) for axis, indices in picked.items()}
    if not kept:
        return np.asarray(materialize(recipe), order="C")
    made = unrepeated(recipe)
    axes = [kept[axis] if axis in kept else np.arange(extent) for axis, extent in enumerate(recipe.shape)]
    if made is recipe:
        return _dense(made, axes)
    first = _dense(made, [np.zeros(1, np.int64), *axes[1:]])
    return np.ascontiguousarray(np.broadcast_to(first, (len(axes[0]), *first.shape[1:])))


def made_in_pieces(recipe: TensorRecipe, most: int = AT_ONCE) -> Iterator[tuple[Piece, Array]]:
    """Yield all elements of a tensor, piece by piece: where each stands, and its values. Of `broadcast`, the first row.

    Raises UsageError as materialize does.
    """
    made = unrepeated(recipe)
    window = window_of(made)
    structured = structure_of(made.fill.params, made.shape)
    plain = not structured and flip_of(made) is None and not made.specials and not made.pokes
    for piece in pieces(made.shape, most):
        if plain:
            part = seen(window, piece)
            yield piece, materialize(made.but(shape=part.shape, origin=part.origin, layout="contiguous"))
        else:
            yield piece, taken(made, {axis: np.arange(s.start, s.stop) for axis, s in enumerate(piece)})


def pieces(shape: tuple[int, ...], most: int) -> Iterator[Piece]:
    """Slices that cut a tensor of this shape, in C order, into pieces of at most so many elements."""
    if not shape or 0 in shape:
        yield tuple(slice(0, extent) for extent in shape)
        return
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= most)
    step = most // math.prod(shape[axis + 1 :])
    rest = tuple(slice(0, extent) for extent in shape[axis + 1 :])
    for head in product(*(range(extent) for extent in shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*(slice(i, i + 1) for i in head), slice(start, min(start + step, shape[axis])), *rest)


def seen(window: Window, piece: Piece) -> Window:
    """The part of a window that a piece of its tensor shows."""
    origin = tuple(start + s.start for start, s in zip(window.origin, piece, strict=True))
    return replace(window, origin=origin, shape=tuple(s.stop - s.start for s in piece))


def _checked(recipe: TensorRecipe, axis: int, indices: Sequence[int] | Indices) -> Indices:
    if axis not in range(len(recipe.shape)):
        raise UsageError(f"axis {axis} is no axis of a tensor of shape {recipe.shape}")
    found = np.asarray(indices, np.int64).reshape(-1)
    outside = found[(found < 0) | (found >= recipe.shape[axis])]
    if outside.size:
        raise UsageError(f"index {outside[0]} is outside of axis {axis}, which has {recipe.shape[axis]}")
    return found


def _dense(recipe: TensorRecipe, axes: list[Indices]) -> Array:
    """Make a recipe that repeats nothing, at these indices of every axis."""
    window_of(recipe)  # refuses what cannot be made
    if structure_of(recipe.fill.params, recipe.shape):
        return np.ascontiguousarray(materialize(recipe)[np.ix_(*axes)])
    flip = flip_of(recipe)
    if flip is not None:
        axes = [recipe.shape[flip] - 1 - along if axis == flip else along for axis, along in enumerate(axes)]
    values = _values(_plain(recipe), axes)
    if recipe.specials or recipe.pokes:
        carrier = values.view(format_of(recipe.dtype).carrier)
        for where, pattern in exceptions(recipe):
            carrier[_met(where, recipe.shape, axes)] = pattern
    return values


def _plain(recipe: TensorRecipe) -> TensorRecipe:
    """The recipe of the values alone: nothing is written over them, and nothing reversed."""
    params = {name: value for name, value in recipe.fill.params.items() if name != "flip"}
    return recipe.but(specials=(), pokes=(), layout="contiguous", fill=recipe.fill.but(params=params))


def _values(recipe: TensorRecipe, axes: list[Indices]) -> Array:
    out = np.empty([len(along) for along in axes], format_of(recipe.dtype).dtype)
    if not out.size:
        return out
    unique, places = zip(*(np.unique(along, return_inverse=True) for along in axes), strict=True)
    pieces = _pieces(recipe.shape, list(unique))
    some = np.empty([len(along) for along in unique], out.dtype)
    origin = recipe.origin or (0,) * len(recipe.shape)
    for runs in product(*pieces):
        shape = tuple(int(stop - start) for start, stop in runs)
        start = tuple(int(o + run[0]) for o, run in zip(origin, runs, strict=True))
        window = materialize(recipe.but(shape=shape, origin=start))
        inside = [(u >= run[0]) & (u < run[1]) for u, run in zip(unique, runs, strict=True)]
        cut = [u[within] - run[0] for u, within, run in zip(unique, inside, runs, strict=True)]
        some[np.ix_(*inside)] = window[np.ix_(*cut)]
    out[...] = some[np.ix_(*places)]
    return out


def _pieces(shape: tuple[int, ...], unique: list[Indices]) -> list[list[tuple[int, int]]]:
    """Runs to be made for every axis, so that it costs least: those of its indices, or one run over all of them."""
    each = [_runs(along) for along in unique]
    whole = [[(int(along[0]), int(along[-1]) + 1)] for along in unique]
    options = [
        [each[axis] if axis in cut else whole[axis] for axis in range(len(shape))]
        for count in range(len(shape) + 1)
        for cut in combinations(range(len(shape)), count)
    ]
    return min(options, key=_cost)


def _cost(pieces: list[list[tuple[int, int]]]) -> int:
    elements = math.prod(sum(stop - start for start, stop in runs) for runs in pieces)
    return elements + WINDOW_COST * math.prod(len(runs) for runs in pieces)


def _runs(along: Indices) -> list[tuple[int, int]]:
    """The stretches of ascending indices without a gap: from where on, and up to where."""
    breaks = np.flatnonzero(np.diff(along) > 1)
    starts, stops = along[np.r_[0, breaks + 1]], along[np.r_[breaks, len(along) - 1]] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _met(where: slice, shape: tuple[int, ...], axes: list[Indices]) -> tuple[Array, ...] | Array:
    """The elements taken that stand in a stretch of the flat tensor, as an index of what was taken."""
    flat = range(where.start, where.stop, where.step or 1)
    if len(flat) <= 1:
        at = np.unravel_index(np.array(flat, np.int64), shape)
        return np.ix_(*(np.flatnonzero(np.isin(along, i)) for along, i in zip(axes, at, strict=True)))
    place = sum(_strided(shape, axes), start=np.zeros((1,) * len(axes), np.int64))
    return np.asarray((place >= flat[0]) & (place <= flat[-1]) & ((place - flat[0]) % flat.step == 0))


def _strided(shape: tuple[int, ...], axes: list[Indices]) -> Iterator[Indices]:
    """Yield what each axis adds to the flat index of an element, broadcastable."""
    step = math.prod(shape)
    for axis, (extent, along) in enumerate(zip(shape, axes, strict=True)):
        step //= extent
        yield (along * step).reshape([-1 if a == axis else 1 for a in range(len(shape))])
