"""Product of two matrices of 8-bit integers, accumulated in 32 bits.

    out[i, j] = alpha * sum_l a[i, l] * b[l, j] + beta * c[i, j]    modulo 2**32, as two's complement

Source: the integer forms of BLAS GEMM and of the tensor cores' mma (PTX ISA, mma.sync.m16n8k32 without .satfinite).
Budget: integers are exact, and so is their wrap-around, in whatever order they are added: E = 0.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.spec.axes import Attrs, Dims
from kernel_assay.oracles.spec.balls import Ball
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, reversed_along

Integers = NDArray[np.integer]


def reference(a: Integers, b: Integers, c: Integers, *, alpha: int, beta: int) -> dict[str, Reals]:
    """Compute in 64 bits, which hold every product and sum, then wrap; in float64 they are exact below 2**53."""
    product = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    wide = np.int64(alpha) * product + np.int64(beta) * c.astype(np.int64)
    return {"out": wide.astype(np.int32).astype(np.float64)}


def budget(q: Question) -> dict[str, Budget]:
    """No error at all."""
    del q
    return {"out": Budget(0.0)}


def element(inputs: Mapping[str, Array], attrs: Attrs, index: tuple[int, ...]) -> Ball:
    """Compute in integers of any size, then wrap."""
    row, column = index
    pairs = zip(inputs["a"][row].tolist(), inputs["b"][:, column].tolist(), strict=True)
    wide = int(attrs.get("alpha", 1)) * sum(a * b for a, b in pairs)
    wide += int(attrs.get("beta", 1)) * int(inputs["c"][index]) if "c" in inputs else 0
    return Ball((wide + 2**31) % 2**32 - 2**31)


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """The ends of the types and 0: no sum of two products is larger than that of -128 times -128, twice."""
    del dims, dtypes
    return {name: Fill(distribution="ends", params={"low": -128, "high": 255}) for name in ("a", "b")}


CONTRACT = Contract(
    name="gemm_int8",
    summary="product of two matrices of 8-bit integers, in 32 bits",
    dims={"m": Dim(0, 256), "n": Dim(0, 256), "k": Dim(0, 1024)},
    inputs={"a": Input(("m", "k")), "b": Input(("k", "n")), "c": Input(("m", "n"))},
    outputs={"out": Output(("m", "n"), dtype="int32")},
    variants=({"a": "int8", "b": "int8", "c": "int32"}, {"a": "uint8", "b": "uint8", "c": "int32"}),
    attrs={"alpha": (1, -1, 3, 1 << 20), "beta": (0, 1, -2)},
    separable=("m", "n"),
    product="integer",
    on_device="sums.GEMM_INT8",
    reference=reference,
    element=element,
    budget=budget,
    probe=probe,
    laws=(
        alone("row_alone", {"a": 0, "c": 0}, within=0.0),
        alone("column_alone", {"b": 1, "c": 1}, out=1, within=0.0),
        reversed_along("k_reversed", {"a": 1, "b": 0}, within=0.0),
    ),
    work=lambda dims: dims["m"] * dims["n"] * dims["k"],
)
