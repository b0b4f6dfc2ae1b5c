"""A case once more with a few other elements: what finds results that are kept by a fingerprint of their inputs.

A kernel that keeps a result by its first elements, by a sum or by a sample hardly ever meets the same fingerprint with
other values around it, unless a case is made for that.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.materialize import materialize, unrepeated
from kernel_assay.corpus.model.case import Case, TensorRecipe

ENDS = 8
"""Elements at either end that stay as they were."""
MOST_ELEMENTS = 1 << 17
"""Of a tensor that is changed: it is made for that."""
LARGEST = 0.5
"""Share of changes that touch the largest element: a softmax may owe everything to that one."""
_DRAWS = 8
"""Elements that are looked at for another value."""


def near_repeat(case: Case, random: Random, kept: Collection[str] = ()) -> Case | None:
    """The case with a few elements of one input changed; None if it has none that could be.

    kept: inputs that do not change from call to call, as weights of a module, with which a module stays what it is.
    """
    able = [name for name, t in case.tensors.items() if _may_change(t) and name not in kept]
    name = random.choice(able) if able else ""
    changed = _changed(case.tensors[name], random) if able else None
    return case.but(tensors={**case.tensors, name: changed}) if changed else None


def _may_change(t: TensorRecipe) -> bool:
    """Whether elements can be written into it one by one: those of packed blocks mean nothing alone."""
    return 1 < t.size <= MOST_ELEMENTS and "flip" not in t.fill.params and "blocks" not in t.fill.distribution


def _changed(t: TensorRecipe, random: Random) -> TensorRecipe | None:
    """Two elements exchanged, which no sum tells; one element another's; or all new but those at the ends."""
    values = np.ascontiguousarray(materialize(unrepeated(t))).reshape(-1)
    bits: Array = values.view(format_of(t.dtype).carrier)
    inner = range(ENDS, len(bits) - ENDS) if len(bits) > 4 * ENDS else range(len(bits))
    one = random.choice(inner)
    if random.random() < LARGEST:
        with np.errstate(all="ignore"):
            one = inner[int(np.argmax(values[inner.start : inner.stop].astype(np.float64)))]
    other = next((i for i in (random.choice(inner) for _ in range(_DRAWS)) if bits[i] != bits[one]), one)
    if one == other:
        return None
    exchanged = _poked(t, {one: bits[other], other: bits[one]})
    return random.choice((exchanged, exchanged, _poked(t, {one: bits[other]}), _new_between(t, bits) or exchanged))


def _new_between(t: TensorRecipe, bits: Array) -> TensorRecipe | None:
    """Other numbers between the ends; None where another seed makes the same, or where there is nothing between."""
    ends = sorted({*range(len(bits))[:ENDS], *range(len(bits))[-ENDS:]})
    made = _poked(t.but(fill=t.fill.but(seed=t.fill.seed + 1)), {i: bits[i] for i in ends})
    return made if materialize(unrepeated(made)).tobytes() != bits.tobytes() else None


def _poked(t: TensorRecipe, pokes: dict[int, int]) -> TensorRecipe:
    return t.but(pokes=(*t.pokes, *((index, int(pattern)) for index, pattern in pokes.items())))
