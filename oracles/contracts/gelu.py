"""GELU, elementwise, with the error function or its tanh approximation.

    approximate = none:  out = x / 2 (1 + erf(x / sqrt 2))
    approximate = tanh:  out = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; the attribute is that of torch.nn.GELU. Budget: the
errors of the function and of its argument enter 1 + f, which cancels for negative x: they are errors of x / 2, not of
the result (numerics.md 2.2).
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.activations import gelu, gelu_ball, gelu_classes, gelu_error
from kernel_assay.oracles.numerics.bounds import range_of
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, moved


def reference(x: Reals, *, approximate: str) -> dict[str, Reals]:
    """The formula."""
    return {"out": gelu(x, approximate)}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.numerics.activations."""
    x, y = q.real("x"), q.want["out"]
    accept = None if np.abs(x).max(initial=0.0) < 0.29 * range_of(q)[1] else gelu_classes(q, x, y)
    return {"out": Budget(gelu_error(q, x, y, str(q.attrs["approximate"])), accept=accept)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    return gelu_ball(ball(inputs["x"][index]), str(attrs["approximate"]))


CONTRACT = Contract(
    name="gelu",
    summary="x times the normal distribution function of x",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"approximate": ("none", "tanh")},
    elementwise=True,
    separable=("rows", "cols"),
    on_device="rows.GELU",
    reference=reference,
    element=element,
    budget=budget,
    laws=(moved("moved", "x"), alone("row_alone", {"x": 0})),
)
