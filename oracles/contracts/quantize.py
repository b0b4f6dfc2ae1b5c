"""Numbers packed into blocks.

    d = max / -8 (q4_0), max / -16 (q5_0): max is the first number of the largest magnitude, with its sign
    d = (max - min) / 15 (q4_1), / 31 (q5_1), m = min;    d = max|x| / 127 (q8_0, q8_1), s = the sum (q8_1)
    q = the integer nearest to x / d or (x - m) / d, with the unrounded d, within the range of the format
    d, m and s are stored as float16, those beyond its largest number as Inf; d = 0 makes every quotient 0

Source: quantize_row_*_ref in GGML's ggml-quants.c. Budget: none, bytes are compared, but several may be right: either
neighbour within float32's error of a tie (which 1/d, 127/max and fused multiply-adds move; the reference itself rounds
halves up or away, SIMD code to even); either float16 beside a d or s that float32 cannot tell apart; as the sum of q8_1
that of the quants times d (CPUs) or of the numbers (GPUs); either zero. Below |d| = 2**-102, which is stored as 0, and
where max - min overflows, any quants: 1/d may overflow, and casts of NaN are undefined. NaN and Inf are never packed,
and -128 is no quant that anyone writes.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import BLOCKS
from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.blocks import dequantized, quantized, unpack
from kernel_assay.oracles.numerics.packing import right_bytes
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Fidelity, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import moved

FINITE = (
    *("zeros", "ones", "small_integers", "uniform", "positive", "normal", "sparse", "wide", "exact_integers"),
    *("powers_of_two", "unit_steps", "constant_rows", "ties", "offset", "cancellation", "huge_row", "log_uniform"),
)
"""Distributions without NaN and Inf."""
ENOUGH = 1024
"""Numbers of which a mean error tells something."""
NORMAL = 2.0**-14
"""Smallest normal number of float16: a smaller d has lost bits, which no packing is to blame for."""


def reference(x: Reals, *, format: str) -> dict[str, Reals]:  # noqa: A002  its name
    """Pack as the C reference does."""
    return {"out": quantized(x.astype(np.float32), format).astype(np.float64)}


def choices(outputs: Mapping[str, Array], inputs: Mapping[str, Array], attrs: Attrs) -> dict[str, NDArray[np.bool_]]:
    """Mark the bytes that a faithful quantizer may give."""
    return {"out": right_bytes(outputs["out"], inputs["x"], str(attrs["format"]))}


def budget(q: Question) -> dict[str, Budget]:
    """No error at all."""
    del q
    return {"out": Budget(0.0)}


def loss(outputs: Mapping[str, Array], inputs: Mapping[str, Array], attrs: Attrs) -> float | None:
    """The squared error of the packed numbers by the square of the numbers; of many, with scales that float16 holds."""
    x, name = inputs["x"].astype(np.float64), str(attrs["format"])
    d = np.abs(unpack(outputs["out"], name).d)
    back = dequantized(outputs["out"], name)
    if x.size < ENOUGH or not x.any() or not (d >= NORMAL).all() or not np.isfinite(back).all():
        return None
    return float(((back - x) ** 2).sum() / (x**2).sum())


CONTRACT = Contract(
    name="quantize",
    summary="numbers packed into blocks",
    dims={"rows": Dim(0, 256), "blocks": Dim(0, 128)},
    inputs={"x": Input(("rows", "blocks*32"), distributions=FINITE, specials=False, scaled=True)},
    outputs={"out": Output(("rows", "blocks*{format}"), dtype="uint8", layouts=("contiguous",))},  # scales are float16
    variants=({"x": "float32"},),
    attrs={"format": tuple(BLOCKS)},
    separable=("rows", "blocks"),
    reference=reference,
    budget=budget,
    choices=choices,
    fidelity=Fidelity(
        "quantization error (NMSE)",
        loss,
        by="format",
        customary={"q4_0": 0.015, "q4_1": 0.015, "q5_0": 0.01, "q5_1": 0.01, "q8_0": 0.005, "q8_1": 0.005},
    ),
    laws=(moved("moved", "x"),),
)
