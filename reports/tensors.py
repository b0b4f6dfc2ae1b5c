"""The tensors of a case in words: made again from the recipe."""

from __future__ import annotations

import numpy as np

from kernel_assay.corpus.formats import Array, format_of, spelled
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.inputs.structures import STRUCTURES
from kernel_assay.corpus.model.case import POKES, Case, TensorRecipe

MOST = 1 << 22
"""Elements of a tensor that is made only to be described."""

_PARAMS = {"flip": "reversed along axis", "shift": "plus"}
"""What some parameters of a fill do to its values."""


def described(case: Case) -> list[tuple[str, ...]]:
    """One row a tensor: name, dtype, shape, layout, how it is filled, smallest, largest, what is special in it."""
    return [
        (name, t.dtype, "x".join(map(str, t.shape)) or "scalar", t.layout, filled(t), *_values(t))
        for name, t in case.tensors.items()
    ]


def filled(t: TensorRecipe) -> str:
    """Words for how a tensor gets its values."""
    fill = t.fill
    words = [fill.distribution]
    words += [
        name if name in STRUCTURES else f"{_PARAMS.get(name, name)} {value}" for name, value in fill.params.items()
    ]
    words += [f"times {fill.scale:g}"] if fill.scale != 1 else []
    words += [f"field {fill.seed}"] if fill.seed else []
    words += [f"{s.value} at {s.place}" for s in t.specials]
    words += [f"[{at}] = {spelled(pattern, t.dtype)}" for at, pattern in t.pokes[:POKES]]
    words += [f"{len(t.pokes) - POKES} more written out"] if len(t.pokes) > POKES else []
    return ", ".join(words)


def _values(t: TensorRecipe) -> tuple[str, str, str]:
    if not 0 < t.size <= MOST:
        return ("-", "-", "nothing" if t.size == 0 else "")
    values = materialize(t)
    with np.errstate(all="ignore"):
        numbers = values.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        ends = (f"{finite.min():.6g}", f"{finite.max():.6g}") if finite.size else ("-", "-")
    return (*ends, _holds(values, numbers))


def _holds(values: Array, numbers: Array) -> str:
    fmt = format_of(values.dtype)
    if not fmt.is_float:
        return ""
    small = (numbers != 0) & (np.abs(numbers) < fmt.tiny)
    tests = {
        "NaN": np.isnan(numbers),
        "Inf": np.isposinf(numbers),
        "-Inf": np.isneginf(numbers),
        "-0": (numbers == 0) & np.signbit(numbers),
        "subnormal": small,
    }
    return ", ".join(f"{int(mask.sum())} {name}" for name, mask in tests.items() if mask.any())
