"""Structures of matrices, the last two axes of a tensor: which elements are 0, or repeat those across the diagonal.

A structure is written over the finished values, special ones and all: every tensor of a recipe that names it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array


def _diagonal(a: Array) -> Array:
    return np.tril(np.triu(a))


def _symmetric(a: Array) -> Array:
    return np.where(np.tri(a.shape[-1], dtype=bool), a, a.swapaxes(-1, -2))


STRUCTURES: dict[str, Callable[[Array], Array]] = {
    "diagonal": _diagonal,
    "lower": np.tril,
    "upper": np.triu,
    "symmetric": _symmetric,
}
"""What each makes of an array whose last two axes are alike; a matrix has the first of them that changes nothing."""
WRITTEN = {
    "diagonal": "np.tril(np.triu({0}))",
    "lower": "np.tril({0})",
    "upper": "np.triu({0})",
    "symmetric": "np.where(np.tri({0}.shape[-1], dtype=bool), {0}, {0}.swapaxes(-1, -2))",
}
"""The same as an expression of numpy."""

_CORNER = 32


def structure_of(params: Mapping[str, int | float], shape: tuple[int, ...]) -> str:
    """The structure that a fill's parameters name; "" for none. Raises UsageError for a shape that cannot have it."""
    name = next((one for one in STRUCTURES if one in params), "")
    if name and (len(shape) < 2 or shape[-1] != shape[-2]):
        raise UsageError(f"a tensor of shape {shape} cannot be {name}: its last two axes must be alike")
    return name


def seen_structure(example: Any) -> str:
    """The structure of an example, an array of numpy or torch; "" for none, and where all elements are alike."""
    if example.ndim < 2 or example.shape[-1] != example.shape[-2] or 0 in example.shape:
        return ""
    # What the whole has, its corner has: most examples are told by that.
    return _seen(example[..., :_CORNER, :_CORNER]) and _seen(example)


def _seen(example: Any) -> str:
    example = example.detach().double().cpu().numpy() if hasattr(example, "detach") else np.asarray(example)
    if bool((example == example.flat[0]).all()):
        return ""
    return next((name for name, made in STRUCTURES.items() if np.array_equal(made(example), example)), "")
