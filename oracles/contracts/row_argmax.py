"""Places of the largest elements of rows.

    out[i] = j with x[i, j] = max_k x[i, k]

Source: ONNX ArgMax and torch.argmax, which leaves open what happens in a row with NaN. Budget: none. Of several largest
elements any is right; in a row with a NaN so is the place of any NaN, and that of the largest number.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, scaled


def reference(x: Reals) -> dict[str, Reals]:
    """The first of the largest numbers."""
    return {"out": np.where(np.isnan(x), -np.inf, x).argmax(axis=-1).astype(np.float64)}


def choices(outputs: Mapping[str, Array], inputs: Mapping[str, Array], attrs: Attrs) -> dict[str, NDArray[np.bool_]]:
    """Mark the places whose element is the largest number or NaN."""
    del attrs
    x, places = np.asarray(inputs["x"], np.float64), outputs["out"].astype(np.int64)
    inside = (places >= 0) & (places < x.shape[1])
    chosen = np.take_along_axis(x, np.where(inside, places, 0)[:, None], axis=1)[:, 0]
    numbers = np.where(np.isnan(x), -np.inf, x)
    tiny = 2.0**-1022 if inputs["x"].dtype == np.float64 else 2.0**-126
    flushed = np.where(np.abs(numbers) < tiny, 0.0, numbers)  # subnormal numbers may be taken for zero
    alike = (chosen == numbers.max(axis=1)) | (np.where(np.abs(chosen) < tiny, 0.0, chosen) == flushed.max(axis=1))
    return {"out": inside & (alike | np.isnan(chosen))}


def budget(q: Question) -> dict[str, Budget]:
    """No error at all."""
    del q
    return {"out": Budget(0.0)}


CONTRACT = Contract(
    name="row_argmax",
    summary="places of the largest elements of rows",
    dims={"rows": Dim(0, 512), "cols": Dim(1, 4096)},
    inputs={"x": Input(("rows", "cols"))},
    outputs={"out": Output(("rows",), dtype="int64")},
    variants=tuple({"x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    separable=("rows",),
    on_device="rows.ROW_ARGMAX",
    reference=reference,
    budget=budget,
    choices=choices,
    laws=(scaled("scaling", {"x": 4.0}, factor=1.0), alone("row_alone", {"x": 0}, within=0.0)),
)
