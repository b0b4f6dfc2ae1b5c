"""SiLU (swish), elementwise.

    out = x * sigmoid(x) = x / (1 + exp(-x))

Source: Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units", 2017. Budget: an error e of exp moves y by
|y| (1 - sigma) e, the sum, the quotient and the product round (6u with room); where exp(-x) overflows or sigma is
subnormal the result may vanish, which at x = -89 costs a normal number (numerics.md 2.2).
"""

import numpy as np
from numpy.typing import NDArray

from oracles.bounds import exp_error, reference_error
from oracles.contract import INTERVAL, NAN, PINF, ZERO, Budget, Contract, Dim, Input, Output, Question, Reals
from oracles.relations import moved


def reference(x: Reals) -> dict[str, Reals]:
    """The formula."""
    return {"out": x / (1.0 + np.exp(-x))}


def budget(q: Question) -> dict[str, Budget]:
    """Relative error e_exp (1 - sigma) + 6u; what can vanish is |x| sigma where sigma < 4 tiny."""
    x, y = q.real("x"), np.abs(q.want["out"])
    least = 2.0**-1022 if q.case.dtype == "float64" else 2.0**-126
    constant = (6.0 + reference_error(q)) * q.u
    magnitude = np.abs(x)
    relative = exp_error(q, np.minimum(magnitude, 1e4)) / (1.0 + np.exp(x)) + constant
    error = y * relative + 1.25 * np.minimum(y, (4.0 * least) * magnitude) + 4.0 * q.tiny
    return {"out": Budget(error, accept=_accept(x))}


def _accept(x: Reals) -> NDArray[np.uint8] | None:
    """silu(-inf) is -inf * 0: NaN as computed, 0 as the limit."""
    if np.isfinite(x).all():
        return None
    choices = [np.isnan(x), x == np.inf, x == -np.inf]
    return np.select(choices, [NAN, PINF, NAN | ZERO], INTERVAL).astype(np.uint8)


CONTRACT = Contract(
    name="silu",
    summary="x times the sigmoid of x",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="x")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    reference=reference,
    budget=budget,
    laws=(moved("moved", "x"),),
)
