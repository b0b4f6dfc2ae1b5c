"""RMS normalization of rows with a weight that is stored as its difference from one.

    out[i, j] = x[i, j] / sqrt(v[i]) * (1 + weight[j]),    v[i] = mean_j(x[i, j]**2) + eps

Source: Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology", 2024, and its reference code. Budget:
as rmsnorm, and one more rounding, that of 1 + weight in the arithmetic (in the type of a 16-bit weight it would cost
hundreds of budgets, which is a bug that has been shipped).
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
    return {"out": rms_normalized(x, 1.0 + weight, eps)}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.numerics.norms."""
    return {"out": rms_budget(q, 1.0 + q.real("weight"), q.u)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    row, column = index
    return rms_ball(balls(inputs["x"][row]), column, float(attrs["eps"])) * (1 + ball(inputs["weight"][column]))


CONTRACT = Contract(
    name="gemma_rmsnorm",
    summary="rows divided by their root mean square, times one plus a weight",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols")), "weight": Input(("cols",))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t, "weight": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"eps": (1e-5, 1e-6, 0.0, 0.1, 3.0)},
    intermediates=INTERMEDIATES,
    separable=("rows",),
    on_device="rows.GEMMA_RMSNORM",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        only_if(lambda case: case.attrs["eps"] == 0.0, scaled("scaling", {"x": 4.0}, factor=1.0)),
        scaled("negation", {"x": -1.0}, factor=-1.0),
        alone("row_alone", {"x": 0}),
        reversed_along("rows_reversed", {"x": 0}, out=0),
    ),
    probe=signs,
)
