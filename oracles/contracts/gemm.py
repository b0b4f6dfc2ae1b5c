"""Matrix product.

    out[i, j] = alpha * sum_l a[i, l] * b[l, j] + beta * c[i, j]

Source: BLAS GEMM; row- and column-major operands are layouts of the inputs, and without c there is no second term.
Budget: k products summed in the declared accumulator in any order (Higham, "Accuracy and Stability of Numerical
Algorithms", 3.1 and 4.2), or in aligned, truncated blocks on a tensor core (Khattak and Mikaitis; numerics.md 2.1),
plus the rounding of tf32 operands and, with ftz, what flushing can take away; then two roundings of each summand and
one of the sum. A sum of magnitudes beyond the accumulator's range may legally give anything; the order of the sum
decides. What beta = 0 or alpha = 0 multiplies may be read or not. Products of float8 give float32.
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


def reference(a: Reals, b: Reals, c: Reals | None = None, *, alpha: float = 1.0, beta: float = 1.0) -> dict[str, Reals]:
    """The product, summed in a wider type than any subject uses."""
    return {"out": summed(a @ b, alpha, beta, c)}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.numerics.products."""
    scaling = scaling_of(q, q.real("c") if "c" in q.inputs else None)
    found = product_budget(q, q.real("a"), q.real("b"), q.want["out"], scaling)
    return {"out": with_lost_nans(q, found, "a", "b")}


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of which every partial sum is exact, with a summand more."""
    a, b = product_probe(dtypes["a"], dims["k"] + 1)
    return {"a": a, "b": b, "c": Fill(distribution="small_integers")}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    row, column = index
    product = dot(balls(inputs["a"][row]), balls(inputs["b"][:, column]))
    return scaled_ball(product, attrs, ball(inputs["c"][index]) if "c" in inputs else None)


CONTRACT = Contract(
    name="gemm",
    summary="product of two matrices",
    dims={"m": Dim(0, 512), "n": Dim(0, 512), "k": Dim(0, 512)},
    inputs={"a": Input(("m", "k")), "b": Input(("k", "n")), "c": Input(("m", "n"))},
    outputs={"out": Output(("m", "n"), like="a", widened="float32")},
    variants=tuple({"a": a, "b": b, "c": c} for a, b, c in VARIANTS),
    attrs={"alpha": ALPHAS, "beta": BETAS},
    intermediates=INTERMEDIATES,
    optional=("alpha", "beta", "c"),
    separable=("m", "n"),
    product="real",
    on_device="sums.GEMM",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("scaling", {"a": 4.0, "c": 4.0}, factor=4.0),
        scaled("b_scaling", {"b": 2.0, "c": 2.0}, factor=2.0),
        scaled("negation", {"b": -1.0, "c": -1.0}, factor=-1.0),
        only_if(lambda case: "c" not in case.tensors, doubled("alpha", {"alpha": 1.0})),
        only_if(lambda case: "c" in case.tensors, doubled("linearity", {"alpha": 1.0, "beta": 1.0})),
        alone("row_alone", {"a": 0, "c": 0}),
        alone("column_alone", {"b": 1, "c": 1}, out=1),
        reversed_along("k_reversed", {"a": 1, "b": 0}),
    ),
    probe=probe,
    work=lambda dims: dims["m"] * dims["n"] * dims["k"],
)
