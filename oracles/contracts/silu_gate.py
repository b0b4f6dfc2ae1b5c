"""The product of SwiGLU: SiLU of a gate times a second input, elementwise.

    out = silu(gate) * up

Source: Shazeer, "GLU Variants Improve Transformer", 2020. Budget: the error of silu(gate), see
oracles/numerics/activations.py, times |up|, and the rounding of the product; with ftz all of it where a factor is
subnormal.
Where silu(gate) may vanish or be NaN, so may the product. Eager implementations round silu(gate) to the type of gate.
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.activations import (
    almost_top,
    flushed,
    gated_classes,
    kept,
    silu,
    silu_ball,
    silu_classes,
    silu_error,
    widened,
)
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Domain, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, scaled


def reference(gate: Reals, up: Reals) -> dict[str, Reals]:
    """The formula."""
    return {"out": silu(gate) * up}


def budget(q: Question) -> dict[str, Budget]:
    """E |up| + 2u |y|, E that of the activation."""
    gate, up, y = q.real("gate"), q.real("up"), q.want["out"]
    act = np.asarray(silu(widened(q, "gate")), np.float64)
    own = kept(q, act, silu_error(q, gate, act))
    error = own * np.abs(up) + 2.0 * q.u * np.abs(y) + 4.0 * q.least + flushed(q, act, up)
    tame = np.abs(gate).max(initial=0.0) <= almost_top(q)  # there is no NaN, either
    if tame and np.isfinite(np.abs(y) + error).all():  # so up is finite
        return {"out": Budget(error)}
    low, high = act - own, act + own
    ends = np.where(gate > 0.0, np.maximum(low, 0.0), low), np.where(gate < 0.0, np.minimum(high, 0.0), high)
    mask = gated_classes(y, act, ends, silu_classes(q, gate, act), up)
    return {"out": Budget(np.where(np.isnan(error), 4.0 * q.least, error), accept=mask)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    del attrs
    return silu_ball(ball(inputs["gate"][index])) * ball(inputs["up"][index])


CONTRACT = Contract(
    name="silu_gate",
    summary="silu of a gate, times a second input",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"gate": Input(("rows", "cols")), "up": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="gate")},
    intermediates={"act": "the activation, before its product with up"},
    variants=tuple({"gate": t, "up": t} for t in ("float32", "float16", "bfloat16", "float64")),
    separable=("rows", "cols"),
    domains=(Domain("float16", {"gate": {"skip": 16}, "up": {}}, "gated"),),
    on_device="rows.SILU_GATE",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("up_scaling", {"up": 4.0}, factor=4.0),
        scaled("negation", {"up": -1.0}, factor=-1.0),
        alone("row_alone", {"gate": 0, "up": 0}),
    ),
)
