"""Product of a matrix of packed weights and one row of packed activations.

    out[i] = sum_b d[i, b] * (e[b] * P - o * s[b]) + m[i, b] * s[b],   P = sum_l q[i, b, l] * p[b, l]

Source, symbols and budget: those of qgemm, with one row of activations.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.block_balls import dot
from kernel_assay.oracles.numerics.block_products import ACTIVATIONS, WEIGHTS, block_probe, product, product_budget
from kernel_assay.oracles.spec.axes import Attrs
from kernel_assay.oracles.spec.balls import Ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, moved

Bytes = NDArray[np.uint8]


def reference(w: Bytes, a: Bytes, *, format: str, activations: str) -> dict[str, Reals]:  # noqa: A002  its name
    """Block by block, in integers and float64."""
    return {"out": product(w, a[None], format, activations)[:, 0]}


def budget(q: Question) -> dict[str, Budget]:
    """The budget of a matrix product with one row."""
    want, name = q.want["out"][:, None], str(q.attrs["format"])
    return {"out": product_budget(q, want, name, str(q.attrs["activations"])).column(0)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """A row of weights times the row of activations."""
    return dot(inputs["w"][index[0]], inputs["a"], str(attrs["format"]), str(attrs["activations"]))


CONTRACT = Contract(
    name="qgemv",
    summary="product of packed weights and a row of packed activations",
    dims={"m": Dim(0, 512), "blocks": Dim(0, 256)},
    inputs={"w": Input(("m", "blocks*{format}")), "a": Input(("blocks*{activations}",))},
    outputs={"out": Output(("m",), dtype="float32")},
    variants=({"w": "uint8", "a": "uint8"},),
    attrs={"format": WEIGHTS, "activations": ACTIVATIONS},
    separable=("m",),
    on_device="sums.QGEMV",
    reference=reference,
    element=element,
    budget=budget,
    laws=(moved("moved_weights", "w"), moved("moved_activations", "a"), alone("row_alone", {"w": 0})),
    probe=block_probe,
)
