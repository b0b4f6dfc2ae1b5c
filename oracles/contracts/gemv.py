"""Product of a matrix and a vector.

    out[i] = alpha * sum_l a[i, l] * x[l] + beta * y[i]

Source: BLAS GEMV; without y there is no second term. Budget: that of gemm with one column
(oracles/numerics/products.py).
"""

from collections.abc import Mapping

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.products import (
    ALPHAS,
    BETAS,
    INTERMEDIATES,
    VARIANTS,
    product_budget,
    product_probe,
    scaled_ball,
    scaling_of,
    summed,
)
from kernel_assay.oracles.numerics.tf32_nans import with_lost_nans
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball, balls, dot
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Dims, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, doubled, only_if, reversed_along, scaled


def reference(a: Reals, x: Reals, y: Reals | None = None, *, alpha: float = 1.0, beta: float = 1.0) -> dict[str, Reals]:
    """The product, summed in a wider type than any subject uses."""
    return {"out": summed(a @ x, alpha, beta, y)}


def budget(q: Question) -> dict[str, Budget]:
    """The budget of a matrix product whose second matrix has one column."""
    scaling = scaling_of(q, q.real("y")[:, None] if "y" in q.inputs else None)
    whole = product_budget(q, q.real("a"), q.real("x")[:, None], q.want["out"][:, None], scaling)
    return {"out": with_lost_nans(q, whole, "a", "x").column(0)}


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of which every partial sum is exact, with a summand more."""
    a, x = product_probe(dtypes["a"], dims["k"] + 1)
    return {"a": a, "x": x, "y": Fill(distribution="small_integers")}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    product = dot(balls(inputs["a"][index]), balls(inputs["x"]))
    return scaled_ball(product, attrs, ball(inputs["y"][index]) if "y" in inputs else None)


CONTRACT = Contract(
    name="gemv",
    summary="product of a matrix and a vector",
    dims={"m": Dim(0, 1024), "k": Dim(0, 4096)},
    inputs={"a": Input(("m", "k")), "x": Input(("k",)), "y": Input(("m",))},
    outputs={"out": Output(("m",), like="a", widened="float32")},
    variants=tuple({"a": a, "x": x, "y": y} for a, x, y in VARIANTS),
    attrs={"alpha": ALPHAS, "beta": BETAS},
    intermediates=INTERMEDIATES,
    optional=("alpha", "beta", "y"),
    separable=("m",),
    on_device="sums.GEMV",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("scaling", {"a": 4.0, "y": 4.0}, factor=4.0),
        scaled("x_scaling", {"x": 2.0, "y": 2.0}, factor=2.0),
        scaled("negation", {"x": -1.0, "y": -1.0}, factor=-1.0),
        only_if(lambda case: "y" not in case.tensors, doubled("alpha", {"alpha": 1.0})),
        only_if(lambda case: "y" in case.tensors, doubled("linearity", {"alpha": 1.0, "beta": 1.0})),
        alone("row_alone", {"a": 0, "y": 0}),
        reversed_along("k_reversed", {"a": 1, "x": 0}),
    ),
    probe=probe,
)
