"""Turn a recipe into values: the same bytes in every process, on every machine."""

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, Format, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.field import Window
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.specials import written
from kernel_assay.corpus.inputs.structures import STRUCTURES, structure_of
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe

Tensors = dict[str, Array]


def materialize(recipe: TensorRecipe) -> Array:
    """The tensor's values, C-contiguous (except for `broadcast`: a read-only view with stride 0).

    Raises UsageError for a distribution, layout, dtype or special that is not known, for an origin whose rank is not
    the shape's, for a poke that is wider than the dtype, for a flip along an axis that the shape does not have, and for
    a structure of what is not square.
    """
    made = unrepeated(recipe)
    return _dense(made) if made is recipe else np.broadcast_to(_dense(made), recipe.shape)


def unrepeated(recipe: TensorRecipe) -> TensorRecipe:
    """The recipe of what must be made: of `broadcast`, the first row only. Raises UsageError for an unknown layout."""
    if recipe.layout not in LAYOUTS:
        raise UsageError(f"layout {recipe.layout!r} is not known; the known ones are {', '.join(LAYOUTS)}")
    if recipe.layout == "broadcast" and recipe.shape and recipe.shape[0] > 1:
        return recipe.but(shape=(1, *recipe.shape[1:]))
    return recipe


def window_of(recipe: TensorRecipe) -> Window:
    """What its distribution fills. Raises UsageError for a dtype, a distribution or an origin as materialize does."""
    fmt, name = format_of(recipe.dtype), recipe.fill.distribution
    if name not in DISTRIBUTIONS:
        raise UsageError(f"distribution {name!r} is not known; the known ones are {', '.join(DISTRIBUTIONS)}")
    origin = recipe.origin or (0,) * len(recipe.shape)
    if len(origin) != len(recipe.shape):
        raise UsageError(f"origin {origin} has not one coordinate for each axis of shape {recipe.shape}")
    if DISTRIBUTIONS[name].floats_only and not fmt.is_float:
        raise UsageError(f"distribution {name!r} makes bit patterns of float types, and {fmt.name} is none")
    return Window(recipe.fill.seed, origin, recipe.shape, fmt, recipe.fill.params)


def exceptions(recipe: TensorRecipe) -> Iterator[tuple[slice, int]]:
    """Yield what is written over the values, in order: where in the flat tensor (C order), and which bit pattern.

    Raises UsageError for a special value or a place that is not known, and for a poke that is wider than the dtype.
    """
    fmt = format_of(recipe.dtype)
    for special in recipe.specials:
        where, pattern = written(fmt, recipe.shape, special.value, special.place)
        yield slice(where.start, where.stop, where.step), pattern
    for index, pattern in recipe.pokes:
        if pattern >> fmt.bits:
            raise UsageError(f"poke {pattern:#x} at {index} does not fit the {fmt.bits} bits of {fmt.name}")
        if index < recipe.size:
            yield slice(index, index + 1), pattern


def flip_of(recipe: TensorRecipe) -> int | None:
    """The axis along which the tensor is reversed at last. Raises UsageError for one that the shape does not have."""
    axis = recipe.fill.params.get("flip")
    if axis is None:
        return None
    if axis not in range(len(recipe.shape)):
        raise UsageError(f"flip {axis} is no axis of a tensor of shape {recipe.shape}")
    return int(axis)


def integer_limits(fmt: Format) -> tuple[int, int]:
    """Limits that values are clipped to before they become integers."""
    info = np.iinfo(fmt.dtype)
    # 2**63 - 1 is no float64, and what lies above (or is NaN) converts differently on each machine.
    return int(info.min), min(int(info.max), 2**63 - 1024)


def _dense(recipe: TensorRecipe) -> Array:
    values = _filled(window_of(recipe), recipe.fill)
    if recipe.specials or recipe.pokes:
        carrier = values.reshape(-1).view(format_of(recipe.dtype).carrier)
        for where, pattern in exceptions(recipe):
            carrier[where] = pattern
    axis = flip_of(recipe)
    values = values if axis is None else np.ascontiguousarray(np.flip(values, axis))
    structure = structure_of(recipe.fill.params, recipe.shape)
    return STRUCTURES[structure](values) if structure else values


def _filled(window: Window, fill: Fill) -> Array:
    fmt = window.format
    with np.errstate(all="ignore"):
        values = DISTRIBUTIONS[fill.distribution].sample(window)
        if values.dtype == fmt.dtype and is_settled(fill, fmt):
            return np.asarray(values, order="C")  # ascontiguousarray would make a vector of a scalar
        values = _scaled(values, fill)
        if not fmt.is_float:
            values = np.clip(np.nan_to_num(values), *integer_limits(fmt))
        return np.asarray(values.astype(fmt.dtype, copy=False), order="C")


def is_settled(fill: Fill, fmt: Format) -> bool:
    """Whether what a distribution gives in the dtype itself is neither scaled nor rounded."""
    return DISTRIBUTIONS[fill.distribution].patterns or not fmt.is_float


def _scaled(values: Array, fill: Fill) -> Array:
    shift = fill.params.get("shift", 0)
    found = values + shift if shift else values
    found = found * fill.scale if fill.scale != 1.0 else found
    # The sign of a NaN that comes of numbers is the processor's business.
    return found if is_tame(fill) else np.where(np.isnan(found), np.nan, found)


def is_tame(fill: Fill) -> bool:
    """Whether shift and scale make no NaN of a number."""
    return math.isfinite(fill.params.get("shift", 0)) and math.isfinite(fill.scale) and fill.scale != 0.0


def materialize_all(case: Case) -> Tensors:
    """All inputs of a case, by name, in order."""
    return {name: materialize(recipe) for name, recipe in case.tensors.items()}


def digest(tensors: Tensors) -> str:
    """blake2b-128 over names, dtypes, shapes and bytes (C order), as hex."""
    h = hashlib.blake2b(digest_size=16)
    for name, array in tensors.items():
        h.update(f"{name}:{format_of(array.dtype).name}:{array.shape};".encode())
        dense = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        h.update(dense.reshape(-1).view(np.uint8).data)
    return h.hexdigest()
