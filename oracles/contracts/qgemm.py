"""Product of a matrix of packed weights and rows of packed activations.

    out[j, i] = sum_b d[i, b] * (e[j, b] * P - o * s[j, b]) + m[i, b] * s[j, b],   P = sum_l q[i, b, l] * p[j, b, l]

d, m, q: scale, min and quants of a weight; e, s, p: scale, sum and quants of an activation; o: the weights' offset (8
of q4_0, 16 of q5_0). Activations of q8_0 have no sum: there s = e * sum_l p, and e * P - o * s = e * sum_l (q - o) * p.

Source: ggml_vec_dot_* in GGML's ggml-cpu/quants.c (q8_0 activations, and q8_1 for q4_1 and q5_1), vec_dot_*_q8_1 in its
ggml-cuda/vecdotq.cuh (q8_1). The sum that is stored is taken as it is: what it should be is the business of quantize.
Budget: P is an integer and exact. 4u for each of a block's two terms and (blocks + 2) u for their sum, by magnitudes of
single elements, |d e q p|, not of blocks: kernels add eight lanes in float32, and blocks cancel. For random blocks the
bound for random terms, with the squares of single elements (oracles/numerics/block_products.py). Weights of +-2**k and
small activations make all of it exact: E = 0. Scales are finite and -128 is no quant: SIMD code takes |p| in 8 bits.
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
    return {"out": product(w, a, format, activations).T}


def budget(q: Question) -> dict[str, Budget]:
    """The budget of sums over blocks."""
    found = product_budget(q, q.want["out"].T, str(q.attrs["format"]), str(q.attrs["activations"]))
    accept = None if found.accept is None else found.accept.T
    return {"out": Budget(np.asarray(found.error).T, accept)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """A row of weights times a row of activations."""
    j, i = index
    return dot(inputs["w"][i], inputs["a"][j], str(attrs["format"]), str(attrs["activations"]))


CONTRACT = Contract(
    name="qgemm",
    summary="product of packed weights and packed activations",
    dims={"m": Dim(0, 256), "n": Dim(0, 128), "blocks": Dim(0, 128)},
    inputs={"w": Input(("m", "blocks*{format}")), "a": Input(("n", "blocks*{activations}"))},
    outputs={"out": Output(("n", "m"), dtype="float32")},
    variants=({"w": "uint8", "a": "uint8"},),
    attrs={"format": WEIGHTS, "activations": ACTIVATIONS},
    separable=("m", "n"),
    on_device="sums.QGEMM",
    reference=reference,
    element=element,
    budget=budget,
    laws=(
        moved("moved_weights", "w"),
        moved("moved_activations", "a"),
        alone("row_alone", {"a": 0}),
        alone("column_alone", {"w": 0}, out=1),
    ),
    probe=block_probe,
    work=lambda dims: 32 * dims["m"] * dims["n"] * dims["blocks"],
)
