"""NaN that a tensor core reads as Inf: tf32 has 10 bits of a payload, and looks at no others (numerics.md 2.1).

So does the conversion of CUDA C++, `__float_to_tf32` (cvt.rna.tf32.f32): for sm_80 and sm_90 ptxas 12.8 makes an
addition of it that leaves out NaN and Inf, and then cuts off 13 bits of all numbers, so that 0x7f800001 becomes Inf.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernel_assay.oracles.numerics.products import tf32_of
from kernel_assay.oracles.spec.contract import NAN, NINF, PINF, Budget, Question

Mask = NDArray[np.bool_]

_INF, _FIRST_KEPT = 0x7F800000, 0x7F802000
"""Patterns between them are the NaN whose first 10 bits of payload are 0."""


def lost_nans(q: Question, name: str) -> Mask | None:
    """Mark inputs that hold such NaN, if their products are declared to be tf32's; None: nowhere."""
    if tf32_of(q) == "none" or q.inputs[name].dtype != np.float32:
        return None
    bits = np.ascontiguousarray(q.inputs[name]).view(np.uint32) & np.uint32(0x7FFFFFFF)
    lost: Mask = (bits > _INF) & (bits < _FIRST_KEPT)
    return lost if lost.any() else None


def with_lost_nans(q: Question, budget: Budget, rows: str, columns: str) -> Budget:
    """A product's budget that allows for them: where one is an operand, NaN is right, and what Inf would give.

    rows, columns: inputs; one has a row for each of the result, the other a column, or is the only column.
    """
    a, b = lost_nans(q, rows), lost_nans(q, columns)
    if budget.accept is None or (a is None and b is None) or float(q.attrs.get("alpha", 1.0)) == 0.0:
        return budget
    lost = np.zeros(budget.accept.shape, np.bool_)
    if a is not None:
        lost |= a.any(axis=1, keepdims=True)
    if b is not None:
        lost |= b.any(axis=0)
    return replace(budget, accept=np.where(lost, budget.accept | NAN | PINF | NINF, budget.accept))


def free_rows(q: Question, shape: tuple[int, ...]) -> Mask | None:
    """Mark rows of attention where anything is right, for a score of Inf takes all or nothing.

    Those are rows whose query or one of whose keys holds such a NaN, and columns of values that do; None: nowhere.
    """
    query, key, value = (lost_nans(q, name) for name in ("q", "k", "v"))
    if query is None and key is None and value is None:
        return None
    lost = np.zeros(shape, np.bool_)
    if query is not None:
        lost |= query.reshape(*shape[:3], -1).any(axis=-1, keepdims=True)
    if key is not None:
        lost |= key.any(axis=(-2, -1), keepdims=True)
    if value is not None:
        lost |= value.any(axis=-2, keepdims=True)
    return lost
