"""Rows of a table, picked by index.

    out[t, :] = table[indices[t], :]

Source: the gather of Mikolov et al., "Efficient Estimation of Word Representations in Vector Space", 2013. Budget:
nothing is computed, so every bit of a row must arrive, NaN payloads and signs of zero included.
"""

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.contract import Budget, Contract, Dim, Input, Output, Question, Reals
from kernel_assay.oracles.spec.law_library import alone, scaled


def reference(table: Reals, indices: NDArray[np.number]) -> dict[str, Reals]:
    """The rows as float64."""
    return {"out": np.asarray(table, np.float64)[indices.astype(np.int64)]}


def copies(table: Array, indices: NDArray[np.number]) -> dict[str, Array]:
    """The rows themselves, bit for bit."""
    return {"out": table[indices.astype(np.int64)]}


def budget(q: Question) -> dict[str, Budget]:
    """No error at all."""
    del q
    return {"out": Budget(0.0, bitwise=True)}


CONTRACT = Contract(
    name="embedding",
    summary="rows of a table picked by index",
    dims={"vocab": Dim(1, 4096), "tokens": Dim(0, 1024), "width": Dim(0, 1024)},
    inputs={
        "table": Input(("vocab", "width")),
        "indices": Input(
            ("tokens",), below="vocab", distributions=("uniform", "edge_indices", "zeros"), specials=False
        ),
    },
    outputs={"out": Output(("tokens", "width"), like="table")},
    variants=tuple(
        {"table": t, "indices": i}
        for i in ("int64", "int32")
        for t in ("float32", "float16", "bfloat16", "float64", "int8")
    ),
    separable=("tokens", "width"),
    on_device="rows.EMBEDDING",
    reference=reference,
    budget=budget,
    copies=copies,
    laws=(scaled("scaling", {"table": 2.0}, factor=2.0), alone("token_alone", {"indices": 0}, within=0.0)),
)
