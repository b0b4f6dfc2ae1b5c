"""Positions that rounding may change: where numbers tie, or nearly do, another one may be taken with equal right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernel_assay.corpus.formats import Array


def unsure(low: Array, high: Array, axis: int, positions: Array) -> Array | None:
    """Mark the positions along an axis at which a number stands that another one may equal; None: all are sure.

    low, high: limits of the numbers.
    """
    if low.ndim == 0 or low.shape[axis] < 2 or not positions.size:
        return None
    low, high, found = np.moveaxis(low, axis, -1), np.moveaxis(high, axis, -1), positions
    if positions.ndim == low.ndim:
        found = np.moveaxis(positions, axis, -1)
    elif positions.shape == low.shape[:-1]:
        found = positions[..., None]
    else:
        return None
    marked = np.take_along_axis(_touching(low, high), found, -1)
    if not marked.any():
        return None
    return np.moveaxis(marked, -1, axis) if positions.ndim == low.ndim else marked[..., 0]


def _touching(low: Array, high: Array) -> Array:
    """Mark the intervals that another one along the last axis touches."""
    order = np.argsort(low, axis=-1, kind="stable")
    low, high = np.take_along_axis(low, order, -1), np.take_along_axis(high, order, -1)
    reach = np.maximum.accumulate(high, axis=-1)
    near = low[..., 1:] <= reach[..., :-1]
    marked = np.zeros(low.shape, np.bool_)
    marked[..., 1:] |= near
    marked[..., :-1] |= low[..., 1:] <= high[..., :-1]
    found = np.empty_like(marked)
    np.put_along_axis(found, order, marked, -1)
    return found


def put(name: str, shape: tuple[int, ...], args: tuple[Any, ...]) -> Array | None:
    """Mark elements of a result into which something is put at positions that are not sure; None: all are.

    name: of the operator, which scatters along an axis, or puts at indices.
    """
    found = [x for x in tree_leaves(args) if getattr(x, "unsure", None) is not None]
    if not found:
        return None
    if name.startswith("scatter") and found[0] is args[2]:
        return lines(shape, args[1], args[2].span.value, args[2].unsure)
    return np.ones(shape, np.bool_)


def lines(shape: tuple[int, ...], axis: int, index: Array, marked: Array) -> Array:
    """Mark all elements of a tensor along an axis into which something is put at a position that is marked."""
    found = np.zeros(shape, np.bool_)
    if not shape:
        return found | marked.any()
    axis %= len(shape)
    part = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(index.shape))
    found[part] |= marked.any(axis=axis, keepdims=True)
    return found


def shared(low: Array, high: Array, made: tuple[int, ...], how: Sequence[Sequence[int]]) -> Array:
    """Mark the elements that are the largest of a window, or may be, of windows in which several are.

    made: the shape of what was pooled; how: kernel, stride, padding and dilation.
    """
    kernel, stride, padding, dilation = ((*one, *one)[:2] for one in how)
    sizes = [
        max(n + before, (count - 1) * step + gap * (k - 1) + 1)
        for n, count, k, step, before, gap in zip(
            low.shape[-2:], made[-2:], kernel, stride, padding, dilation, strict=True
        )
    ]
    inside: Any = (..., *(slice(b, b + n) for b, n in zip(padding, low.shape[-2:], strict=True)))
    wide = np.full((2, *low.shape[:-2], *(s + b for s, b in zip(sizes, padding, strict=True))), -np.inf)
    wide[0][inside], wide[1][inside] = low, high
    starts = [[i * gap for i in range(k)] for k, gap in zip(kernel, dilation, strict=True)]
    places: list[Any] = [
        (
            ...,
            *(
                slice(at, at + (count - 1) * step + 1, step)
                for at, count, step in zip(start, made[-2:], stride, strict=True)
            ),
        )
        for start in product(*starts)
    ]
    best = reduce(np.maximum, (wide[0][place] for place in places))
    several = sum((wide[1][place] >= best).astype(np.int64) for place in places) > 1
    marked: Array = np.zeros(wide[1].shape, np.bool_)
    for place in places:
        marked[place] |= several & (wide[1][place] >= best)
    found: Array = marked[inside]
    return found


def axis_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The axis along which an operator looks for places; -1: all numbers in a row."""
    arguments = {x.name: x for x in func._schema.arguments}  # noqa: SLF001
    at = [*arguments].index("dim")
    axis = args[at] if at < len(args) else kwargs.get("dim", arguments["dim"].default_value)
    return -1 if axis is None else int(axis) % max(1, args[0].ndim)


def moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Array | None:
    """Mark which positions are not sure, where an operator has moved them; None: all are."""
    if all(getattr(x, "unsure", None) is None for x in tree_leaves((args, kwargs))):
        return None
    found: torch.Tensor = func(*tree_map(_marks, args), **tree_map(_marks, kwargs))
    return np.array(found.numpy()) if found.dtype == torch.bool else None


def _marks(x: Any) -> Any:
    if not hasattr(x, "unsure"):
        return x
    return torch.zeros(x.shape, dtype=torch.bool) if x.unsure is None else torch.from_numpy(x.unsure)
