"""Rows of logits: whether the first choice is the same one, and how far the probabilities are apart."""

from __future__ import annotations

import math

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.comparing.distance import Side
from kernel_assay.fuzz.comparing.result import Row, Rows

_WIDEST = 1 << 23
"""Scores of the longest row: one is read as a whole."""
_ELEMENTS = 1 << 20
"""Scores that are in memory at a time, of shorter rows."""
_WORST = 5
"""Rows that are told."""


def rows(a: Side, b: Side) -> Rows | None:
    """Compare the rows of two tensors of one shape, which are their last axis; None if they have none.

    Raises UsageError for a row that is too long.
    """
    shape = a.tensor.shape
    if not shape or not a.tensor.size or not (a.tensor.format.is_float and b.tensor.format.is_float):
        return None
    wide = shape[-1]
    if wide > _WIDEST:
        raise UsageError(f"a row of {a.tensor.name} has {wide:,} scores; up to {_WIDEST:,} are compared as logits")
    count, flips, total, most, worst = a.tensor.size // wide, 0, 0.0, 0.0, list[Row]()
    for low, high in a.tensor.spans(max(1, _ELEMENTS // wide) * wide):
        block = [side.part(low, high).astype(np.float64).reshape(-1, wide) for side in (a, b)]
        found = _looked(*block)
        flips += int((found["a"] != found["b"]).sum())
        total += float(found["kl"].sum())
        for i in np.lexsort((-found["kl"], found["a"] == found["b"]))[:_WORST]:
            if found[i]["a"] == found[i]["b"] and not found[i]["kl"]:
                break
            index = tuple(int(n) for n in np.unravel_index(low // wide + int(i), shape[:-1])) if shape[:-1] else ()
            one = found[i]
            worst.append(
                Row(index=index, a=int(one["a"]), b=int(one["b"]), lead=float(one["lead"]), kl=float(one["kl"]))
            )
        worst = sorted(worst, key=lambda row: (row.a == row.b, -row.kl))[:_WORST]
        most = max(most, float(found["kl"].max()))
    return Rows(count=count, flips=flips, mean_kl=total / count, max_kl=most, worst=tuple(worst))


_KINDS = np.dtype([("a", np.int64), ("b", np.int64), ("lead", np.float64), ("kl", np.float64)])


def _looked(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """First choices, the lead of A's, and the divergence of each row."""
    found = np.zeros(len(a), _KINDS)
    found["a"], found["b"] = a.argmax(1), b.argmax(1)
    with np.errstate(all="ignore"):
        if a.shape[1] > 1:
            top = np.partition(a, -2, axis=1)[:, -2:]
            found["lead"] = np.nan_to_num(top[:, 1] - top[:, 0], nan=0.0, posinf=math.inf)
        alike = (a == b).all(1) | (np.isnan(a) & np.isnan(b)).all(1)
        from scipy.special import log_softmax, rel_entr  # noqa: PLC0415  a tenth of a second, for this alone

        kl = rel_entr(np.exp(log_softmax(a, 1)), np.exp(log_softmax(b, 1))).sum(1)
    found["kl"] = np.where(alike, 0.0, np.where(np.isnan(kl), np.inf, np.maximum(kl, 0.0)))
    return found
