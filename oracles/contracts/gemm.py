"""Matrix product.

    out[i, j] = sum_l a[i, l] * b[l, j]

Source: BLAS GEMM with alpha = 1, beta = 0. Budget: k products summed in the declared accumulator in any order (Higham,
"Accuracy and Stability of Numerical Algorithms", 3.1 and 4.2), or in aligned, truncated blocks on a tensor core
(Khattak and Mikaitis; numerics.md 2.1), plus the rounding of tf32 operands and, with ftz, what flushing can take away.
A sum of magnitudes beyond the accumulator's range may legally give anything; the order of the sum decides.
"""

from collections.abc import Mapping

from corpus.records import Fill
from oracles.contract import Budget, Contract, Dim, Dims, Input, Output, Question, Reals
from oracles.products import product_budget, product_probe
from oracles.relations import scaled


def reference(a: Reals, b: Reals) -> dict[str, Reals]:
    """The product, summed in a wider type than any subject uses."""
    return {"out": a @ b}


def budget(q: Question) -> dict[str, Budget]:
    """See oracles.products."""
    return {"out": product_budget(q, q.real("a"), q.real("b"), q.want["out"])}


def probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Integers of which every partial sum is exact."""
    a, b = product_probe(dtypes["a"], dims["k"])
    return {"a": a, "b": b}


CONTRACT = Contract(
    name="gemm",
    summary="product of two matrices",
    dims={"m": Dim(0, 512), "n": Dim(0, 512), "k": Dim(0, 512)},
    inputs={"a": Input(("m", "k")), "b": Input(("k", "n"))},
    outputs={"out": Output(("m", "n"), like="a")},
    variants=tuple({"a": t, "b": t} for t in ("float32", "float16", "bfloat16", "float64")),
    reference=reference,
    budget=budget,
    laws=(scaled("scaling", {"a": 4.0}, factor=4.0), scaled("negation", {"b": -1.0}, factor=-1.0)),
    probe=probe,
    work=lambda dims: dims["m"] * dims["n"] * dims["k"],
)
