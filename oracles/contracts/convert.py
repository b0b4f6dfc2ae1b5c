"""Conversion of floats to another float type.

    out[i, j] = the number of the type `to` nearest to x[i, j], ties to the even significand

Source: IEEE 754-2019, 5.4.2 and 4.3.1; OCP 8-bit Floating Point Specification, 2023, for float8. Budget: one rounding
and nothing before it, so E = 0. Beyond the largest finite number plus half a step the nearest "number" is Inf, with
`saturate` the largest number; float8_e4m3fn, which has no Inf, may have NaN there or the largest number. Subnormals are
values, not intermediates: ftz is no excuse. A zero has the sign of x, whether x is one or rounds to it (IEEE 754, 6.3).
"""

from collections.abc import Mapping

import numpy as np

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball, ball
from kernel_assay.oracles.spec.contract import (
    INTERVAL,
    NAN,
    Budget,
    Contract,
    Dim,
    Domain,
    Input,
    Output,
    Question,
    Reals,
)
from kernel_assay.oracles.spec.law_library import alone, scaled

E4M3_OVER = 464.0
"""Half a step beyond 448, the largest number of float8_e4m3fn."""


def reference(x: Reals, *, to: str, saturate: bool = False) -> dict[str, Reals]:
    """The value itself, or the end of the range; the oracle rounds it."""
    top = format_of(to).max
    return {"out": np.clip(x, -top, top) if saturate or not format_of(to).has_inf else x}


def budget(q: Question) -> dict[str, Budget]:
    """The correctly rounded value, whatever the subject's arithmetic."""
    if q.attrs.get("saturate") or format_of(str(q.attrs["to"])).has_inf:
        return {"out": Budget(0.0, signed=True)}
    x = q.real("x")
    accept = np.where(np.isnan(x), NAN, np.where(np.abs(x) > E4M3_OVER, INTERVAL | NAN, INTERVAL)).astype(np.uint8)
    return {"out": Budget(0.0, accept=accept, signed=True)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """The value itself, or the end of the range."""
    x, fmt = ball(inputs["x"][index]), format_of(str(attrs["to"]))
    if not attrs.get("saturate", False) and fmt.has_inf:
        return x
    return x.min(ball(fmt.max)).max(ball(-fmt.max))


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of up to 13 bits: many lie halfway between two numbers of a narrow type."""
    del dims, dtypes
    return {"x": Fill(distribution="exact_integers", params={"bound": 8191})}


CONTRACT = Contract(
    name="convert",
    summary="floats rounded to another float type",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), dtype="{to}")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")),
    attrs={"to": ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"), "saturate": (False, True)},
    optional=("saturate",),
    elementwise=True,
    separable=("rows", "cols"),
    domains=tuple(Domain("float32", {"x": {}}, "conversions", {"to": to}) for to in ("float16", "bfloat16")),
    on_device="rows.CONVERT",
    reference=reference,
    element=element,
    budget=budget,
    probe=probe,
    laws=(scaled("negation", {"x": -1.0}, factor=-1.0), alone("row_alone", {"x": 0}, within=0.0)),
)
