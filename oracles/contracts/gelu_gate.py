"""The product of GEGLU: GELU of a gate times a second input, elementwise.

    out = gelu(gate) * up

Source: Shazeer, "GLU Variants Improve Transformer", 2020. Budget: the error of gelu(gate), see
oracles/numerics/activations.py, times |up|, and the rounding of the product; with ftz all of it where a factor is
subnormal.
Where gelu(gate) may vanish or be NaN, so may the product. Eager implementations round gelu(gate) to the type of gate.
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.activations import (
    flushed,
    gated_classes,
    gelu,
    gelu_ball,
    gelu_classes,
    gelu_error,
    kept,
    widened,
)
from kernel_assay.oracles.numerics.bounds import range_of
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, scaled


def reference(gate: Reals, up: Reals, *, approximate: str) -> dict[str, Reals]:
    """The formula."""
    return {"out": gelu(gate, approximate) * up}


def budget(q: Question) -> dict[str, Budget]:
    """E |up| + 2u |y|, E that of the activation."""
    gate, up, y = q.real("gate"), q.real("up"), q.want["out"]
    approximate = str(q.attrs["approximate"])
    act = np.asarray(gelu(widened(q, "gate"), approximate), np.float64)
    own = kept(q, act, gelu_error(q, gate, act, approximate))
    error = own * np.abs(up) + 2.0 * q.u * np.abs(y) + 4.0 * q.least + flushed(q, act, up)
    tame = np.abs(gate).max(initial=0.0) < 0.29 * range_of(q)[1]
    if tame and np.isfinite(np.abs(y) + error).all():  # so up is finite
        return {"out": Budget(error)}
    mask = gated_classes(y, act, (act - own, act + own), gelu_classes(q, gate, act), up)
    return {"out": Budget(np.where(np.isnan(error), 4.0 * q.least, error), accept=mask)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The formula."""
    return gelu_ball(ball(inputs["gate"][index]), str(attrs["approximate"])) * ball(inputs["up"][index])


CONTRACT = Contract(
    name="gelu_gate",
    summary="gelu of a gate, times a second input",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"gate": Input(("rows", "cols")), "up": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), like="gate")},
    intermediates={"act": "the activation, before its product with up"},
    variants=tuple({"gate": t, "up": t} for t in ("float32", "float16", "bfloat16", "float64")),
    attrs={"approximate": ("none", "tanh")},
    separable=("rows", "cols"),
    on_device="rows.GELU_GATE",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        scaled("up_scaling", {"up": 4.0}, factor=4.0),
        scaled("negation", {"up": -1.0}, factor=-1.0),
        alone("row_alone", {"gate": 0, "up": 0}),
    ),
)
