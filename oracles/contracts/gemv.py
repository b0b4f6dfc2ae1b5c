"""Product of a matrix and a vector.

    out[i] = sum_l a[i, l] * x[l]

Source: BLAS GEMV with alpha = 1, beta = 0. Budget: that of gemm with one column (oracles/products.py).
"""

from collections.abc import Mapping

from corpus.records import Fill
from oracles.contract import Budget, Contract, Dim, Dims, Input, Output, Question, Reals
from oracles.products import product_budget, product_probe
from oracles.relations import scaled


def reference(a: Reals, x: Reals) -> dict[str, Reals]:
    """The product, summed in a wider type than any subject uses."""
    return {"out": a @ x}


def budget(q: Question) -> dict[str, Budget]:
    """That of a matrix product whose second matrix has one column."""
    columns = product_budget(q, q.real("a"), q.real("x")[:, None], q.want["out"][:, None])
    return {"out": columns.column(0)}


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of which every partial sum is exact."""
    a, x = product_probe(dtypes["a"], dims["k"])
    return {"a": a, "x": x}


CONTRACT = Contract(
    name="gemv",
    summary="product of a matrix and a vector",
    dims={"m": Dim(0, 1024), "k": Dim(0, 4096)},
    inputs={"a": Input(("m", "k")), "x": Input(("k",))},
    outputs={"out": Output(("m",), like="a")},
    variants=tuple({"a": t, "x": t} for t in ("float32", "float16", "bfloat16", "float64")),
    reference=reference,
    budget=budget,
    laws=(scaled("scaling", {"a": 4.0}, factor=4.0), scaled("negation", {"x": -1.0}, factor=-1.0)),
    probe=probe,
)
