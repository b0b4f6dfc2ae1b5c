"""Sums of rows.

    out[i] = sum_j x[i, j]

Source: Higham, "The Accuracy of Floating Point Summation", 1993. Budget: n terms in the declared accumulator, in any
order; those are products with ones (oracles/numerics/products.py). A sum of magnitudes beyond the accumulator's range
may legally give anything.
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.products import INTERMEDIATES, product_budget, product_probe
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball, balls, total
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, reversed_along, scaled


def reference(x: Reals) -> dict[str, Reals]:
    """The sum in a wider type than any subject uses."""
    return {"out": x.sum(axis=-1)}


def budget(q: Question) -> dict[str, Budget]:
    """The budget of a product with a column of ones."""
    x = q.real("x")
    return {"out": product_budget(q, x, np.ones((x.shape[1], 1)), q.want["out"][:, None]).column(0)}


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of which every partial sum is exact."""
    return {"x": product_probe(dtypes["x"], dims["cols"])[0]}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    del attrs
    return total(balls(inputs["x"][index]))


CONTRACT = Contract(
    name="row_sum",
    summary="sums of rows",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows",), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    intermediates={"parts": INTERMEDIATES["parts"]},
    separable=("rows",),
    on_device="rows.ROW_SUM",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("scaling", {"x": 4.0}, factor=4.0),
        scaled("negation", {"x": -1.0}, factor=-1.0),
        alone("row_alone", {"x": 0}),
        reversed_along("columns_reversed", {"x": 1}),
    ),
    probe=probe,
)
