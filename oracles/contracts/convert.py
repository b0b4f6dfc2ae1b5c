"""Conversion of float32 to a narrower float type.

    out[i, j] = the number of the type `to` nearest to x[i, j], ties to the even significand

Source: IEEE 754-2019, 5.4.2 and 4.3.1. Budget: one rounding and nothing before it, so E = 0; beyond the largest
finite number plus half a step the nearest "number" is Inf. Subnormals are values, not intermediates: ftz is no excuse.
"""

from oracles.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from oracles.relations import scaled


def reference(x: Reals, *, to: str) -> dict[str, Reals]:
    """The value itself; the judge rounds it."""
    del to
    return {"out": x}


def budget(q: Question) -> dict[str, Budget]:
    """The correctly rounded value, whatever the subject's arithmetic."""
    del q
    return {"out": Budget(0.0)}


CONTRACT = Contract(
    name="convert",
    summary="float32 rounded to float16 or bfloat16",
    dims={"rows": Dim(0, 512), "cols": Dim(0, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows", "cols"), dtype="{to}")},
    variants=({"x": "float32"},),
    attrs={"to": ("float16", "bfloat16")},
    reference=reference,
    budget=budget,
    laws=(scaled("negation", {"x": -1.0}, factor=-1.0),),
)
