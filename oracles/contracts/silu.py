"""SiLU (swish), elementwise.

    out = x * sigmoid(x) = x / (1 + exp(-x))

Source: Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units", 2017. Budget: an error e of exp moves y by
|y| (1 - sigma) e, the sum, the quotient and the product round (6u with room); where exp(-x) overflows or sigma is
subnormal the result may vanish, which at x = -89 costs a normal number (numerics.md 2.2).
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.activations import almost_top, silu, silu_ball, silu_classes, silu_error
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, moved


def reference(x: Reals) -> dict[str, Reals]:
    """The formula."""
    return {"out": silu(x)}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.numerics.activations."""
    x, y = q.real("x"), q.want["out"]
    accept = None if np.abs(x).max(initial=0.0) <= almost_top(q) else silu_classes(q, x, y)
    return {"out": Budget(silu_error(q, x, y), accept=accept)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    del attrs
    return silu_ball(ball(inputs["x"][index]))


CONTRACT = Contract(
    name="silu",
    summary="x times the sigmoid of x",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    intermediates={"sigmoid": "the sigmoid, before its product with x"},
    elementwise=True,
    separable=("rows", "cols"),
    on_device="rows.SILU",
    reference=reference,
    element=element,
    budget=budget,
    laws=(moved("moved", "x"), alone("row_alone", {"x": 0})),
)
