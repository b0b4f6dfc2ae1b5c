"""Turn a recipe into values: the same bytes in every process, on every machine."""

import hashlib

import numpy as np

from corpus.distributions import DISTRIBUTIONS
from corpus.errors import UsageError
from corpus.field import Window
from corpus.formats import Array, Format, format_of
from corpus.layouts import LAYOUTS
from corpus.records import Case, TensorRecipe
from corpus.specials import write

Tensors = dict[str, Array]


def materialize(recipe: TensorRecipe) -> Array:
    """The tensor's values, C-contiguous (except for `broadcast`: a read-only view with stride 0).

    Raises UsageError for a distribution, layout, dtype or special that is not known, for an origin whose rank is not
    the shape's, for a poke that is wider than the dtype, and for a flip along an axis that the shape does not have.
    """
    if recipe.layout not in LAYOUTS:
        raise UsageError(f"layout {recipe.layout!r} is not known; the known ones are {', '.join(LAYOUTS)}")
    if recipe.layout == "broadcast" and recipe.shape and recipe.shape[0] > 1:
        one = recipe.but(shape=(1, *recipe.shape[1:]))
        return np.broadcast_to(_dense(one), recipe.shape)
    return _dense(recipe)


def _dense(recipe: TensorRecipe) -> Array:
    fmt = format_of(recipe.dtype)
    values = _filled(recipe, fmt)
    if recipe.specials or recipe.pokes:
        carrier = values.reshape(-1).view(fmt.carrier)
        for special in recipe.specials:
            write(carrier, fmt, recipe.shape, special.value, special.place)
        for index, pattern in recipe.pokes:
            if pattern >> fmt.bits:
                raise UsageError(f"poke {pattern:#x} at {index} does not fit the {fmt.bits} bits of {fmt.name}")
            if index < carrier.size:
                carrier[index] = pattern
    flip = recipe.fill.params.get("flip")
    return values if flip is None else _reversed(values, flip)


def _reversed(values: Array, axis: float) -> Array:
    if axis not in range(values.ndim):
        raise UsageError(f"flip {axis} is no axis of a tensor of shape {values.shape}")
    return np.ascontiguousarray(np.flip(values, int(axis)))


def _filled(recipe: TensorRecipe, fmt: Format) -> Array:
    name = recipe.fill.distribution
    if name not in DISTRIBUTIONS:
        raise UsageError(f"distribution {name!r} is not known; the known ones are {', '.join(DISTRIBUTIONS)}")
    origin = recipe.origin or (0,) * len(recipe.shape)
    if len(origin) != len(recipe.shape):
        raise UsageError(f"origin {origin} has not one coordinate for each axis of shape {recipe.shape}")
    window = Window(recipe.fill.seed, origin, recipe.shape, fmt, recipe.fill.params)
    with np.errstate(all="ignore"):
        values = DISTRIBUTIONS[name].sample(window)
        if values.dtype == fmt.dtype:
            return np.asarray(values, order="C")  # ascontiguousarray would make a vector of a scalar
        if shift := recipe.fill.params.get("shift"):
            values = values + shift
        if recipe.fill.scale != 1.0:
            values = values * recipe.fill.scale
        if not fmt.is_float:
            info = np.iinfo(fmt.dtype)
            # 2**63 - 1 is no float64, and what lies above (or is NaN) converts differently on each machine.
            values = np.clip(np.nan_to_num(values), info.min, min(info.max, 2**63 - 1024))
        return np.asarray(values.astype(fmt.dtype), order="C")


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
