"""RMS normalization of rows with a weight.

    out[i, j] = x[i, j] / sqrt(v[i]) * weight[j],    v[i] = mean_j(x[i, j]**2) + eps

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. Budget: the sum of n squares gives v an error
e_v, of which the root takes half; one reciprocal square root (4u), three roundings (numerics.md 2.2). A sum of squares
that overflows may legally give 0; one that underflows, without eps, may give anything.
"""

from collections.abc import Mapping

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.norms import INTERMEDIATES, rms_ball, rms_budget, rms_normalized, signs
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball, balls
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, only_if, reversed_along, scaled


def reference(x: Reals, weight: Reals, *, eps: float) -> dict[str, Reals]:
    """The formula."""
    return {"out": rms_normalized(x, weight, eps)}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.numerics.norms."""
    return {"out": rms_budget(q, q.real("weight"))}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    row, column = index
    return rms_ball(balls(inputs["x"][row]), column, float(attrs["eps"])) * ball(inputs["weight"][column])


CONTRACT = Contract(
    name="rmsnorm",
    summary="rows divided by their root mean square, times a weight",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols")), "weight": Input(("cols",))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t, "weight": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"eps": (1e-5, 1e-6, 0.0, 0.1, 3.0)},
    intermediates=INTERMEDIATES,
    separable=("rows",),
    on_device="rows.RMSNORM",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("weight_scaling", {"weight": 4.0}, factor=4.0),
        only_if(lambda case: case.attrs["eps"] == 0.0, scaled("scaling", {"x": 4.0}, factor=1.0)),
        scaled("negation", {"x": -1.0}, factor=-1.0),
        alone("row_alone", {"x": 0}),
        reversed_along("rows_reversed", {"x": 0}, out=0),
    ),
    probe=signs,
)
