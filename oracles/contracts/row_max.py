"""Largest elements of rows.

    out[i] = max_j x[i, j]

Source: IEEE 754-2019, 9.6 (maximum, maximumNumber). Budget: nothing is computed, E = 0. In a row with a NaN either
answer is right: NaN, or the largest of the numbers; a row of nothing but NaN may also be -Inf, where a fold begins.
With a signalling NaN any is: maxNum of IEEE 754-2008, and C's fmax, make a quiet one of it and forget what came before.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.oracles.numerics.bounds import classes_of
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, balls
from kernel_assay.oracles.spec.contract import ALL, NAN, NINF, Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, reversed_along, scaled


def reference(x: Reals) -> dict[str, Reals]:
    """The largest number of a row; NaN if there is none."""
    top = np.where(np.isnan(x), -np.inf, x).max(axis=-1)  # not fmax, of which a signaling NaN makes NaN
    return {"out": np.where(np.isnan(x).all(axis=-1), np.nan, top)}


def budget(q: Question) -> dict[str, Budget]:
    """The value itself; a subnormal one may be taken for zero."""
    x, top = q.real("x"), q.want["out"]
    error = np.where(np.abs(top) < q.tiny, q.tiny, 0.0)
    spoiled = np.isnan(x).any(axis=-1)
    if not spoiled.any():
        return {"out": Budget(error)}
    mask = classes_of(top)
    mask[spoiled] |= NAN
    mask[np.isnan(top)] |= NINF
    forgetful = _signalling(q.inputs["x"]).any(axis=-1)
    mask[forgetful] = ALL
    return {"out": Budget(np.where(forgetful, np.inf, error), accept=mask)}


def _signalling(x: Array) -> NDArray[np.bool_]:
    """NaN whose first bit of payload is 0."""
    fmt = format_of(x.dtype)
    quiet = fmt.nan_bits & ~fmt.inf_bits
    mask: NDArray[np.bool_] = np.isnan(x) & (np.ascontiguousarray(x).view(fmt.carrier) & fmt.carrier.type(quiet) == 0)
    return mask


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The largest of the numbers in a row."""
    del attrs
    return max(value for value in balls(inputs["x"][index]) if not value.is_nan())


DRAWN = (*(d.name for d in DISTRIBUTIONS.values() if d.floats), *("raw_bits",) * 4)
"""Nothing is computed, so a bug is one of comparing: NaN at any place among numbers of any size shows it soonest."""

CONTRACT = Contract(
    name="row_max",
    summary="largest elements of rows",
    dims={"rows": Dim(0, 512), "cols": Dim(1, 4096)},
    inputs={"x": Input(("rows", "cols"), distributions=DRAWN)},
    outputs={"out": Output(("rows",), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    separable=("rows",),
    on_device="rows.ROW_MAX",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("scaling", {"x": 4.0}, factor=4.0),
        alone("row_alone", {"x": 0}, within=0.0),
        reversed_along("columns_reversed", {"x": 1}, within=0.0),
    ),
)
