"""Numbers out of packed blocks.

    out[i, 32 b + j] = d[i, b] * (q[i, b, j] - offset) + m[i, b]    the offset is the format's, m its min if it has one

Source: dequantize_row_* in GGML's ggml-quants.c; q8_1 likewise, its sum is not read. Budget: d * q has at most 19 bits,
so float32 holds it, and the sum with a min is the one rounding there is: E = 0. Outputs of 16 bits may have been made
float32 before, which matters where float32 does not hold the sum: E = u |y| there, else 0. Scales that are subnormal in
float16 are normal numbers of float32, and subnormal float16 results are values: ftz is no excuse. An infinite scale may
make NaN: d * q - d * offset is Inf - Inf (dequantize_block_q4_0 in ggml-cuda/convert.cu). A subject that declares a
narrow accumulator multiplies and adds in it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import BLOCKS, block_format
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.numerics.block_balls import value
from kernel_assay.oracles.numerics.blocks import dequantized, unpack
from kernel_assay.oracles.numerics.bounds import ACCUMULATOR_UNIT, classes_of
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball
from kernel_assay.oracles.spec.contract import NAN, Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, moved


def reference(w: NDArray[np.uint8], *, format: str, to: str = "float32") -> dict[str, Reals]:  # noqa: A002  its name
    """Exactly; the oracle rounds it."""
    del to
    return {"out": dequantized(w, format)}


def budget(q: Question) -> dict[str, Budget]:
    """The budget of the last rounding, or of one to float32 before it."""
    want, name = q.want["out"], str(q.attrs["format"])
    if q.numerics.accumulate in ACCUMULATOR_UNIT or q.every:
        return {"out": Budget(_narrow_error(q, name, want))}
    if block_format(name).offset and np.isinf(want).any():
        return {"out": Budget(0.0, accept=classes_of(want) | np.where(np.isinf(want), np.uint8(NAN), np.uint8(0)))}
    if block_format(name).second != "min" or q.attrs.get("to", "float32") == "float32":
        return {"out": Budget(0.0)}
    held = (want.astype(np.float32) == want) | ~np.isfinite(want)
    return {"out": Budget(np.where(held, 0.0, q.u * np.abs(want)))}


def _narrow_error(q: Question, name: str, want: Reals) -> Reals:
    """The scale, the product and the min are rounded, and so is the sum."""
    unit = max(ACCUMULATOR_UNIT.get(q.numerics.accumulate, 0.0), q.every.unit)
    eta = max(format_of(q.numerics.accumulate).eta, 2.0 * q.every.half)
    stored = unpack(q.inputs["w"], name).m if block_format(name).second == "min" else np.zeros(())
    least = np.repeat(stored, 32, axis=-1) if stored.ndim else stored
    return np.asarray(unit * (2.0 * np.abs(want - least) + np.abs(least) + np.abs(want)) + 3.0 * eta)


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """One quant, its scale and its min."""
    return value(inputs["w"][index[0]], index[1], str(attrs["format"]))


CONTRACT = Contract(
    name="dequantize",
    summary="numbers out of packed blocks",
    dims={"rows": Dim(0, 256), "blocks": Dim(0, 128)},
    inputs={"w": Input(("rows", "blocks*{format}"))},
    outputs={"out": Output(("rows", "blocks*32"), dtype="{to}")},
    variants=({"w": "uint8"},),
    attrs={"format": tuple(BLOCKS), "to": ("float32", "float16", "bfloat16")},
    optional=("to",),
    elementwise=True,
    separable=("rows", "blocks"),
    on_device="rows.DEQUANTIZE",
    reference=reference,
    element=element,
    budget=budget,
    laws=(moved("moved", "w"), alone("row_alone", {"w": 0})),
)
