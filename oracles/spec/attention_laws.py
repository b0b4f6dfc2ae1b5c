"""The laws of attention: how mixtures of values change with values, scores and sequences."""

from __future__ import annotations

from kernel_assay.corpus.model.case import Case
from kernel_assay.oracles.spec.law_library import alone, only_if, prefix, reversed_along, scaled

_KEYS = {"k": 2, "v": 2}


def _sees_all(case: Case) -> bool:
    """Whether every query sees every key."""
    return not case.attrs["causal"] and "lengths" not in case.tensors


def _sees_past(case: Case) -> bool:
    """Whether a query sees the keys up to its own place."""
    return bool(case.attrs["causal"]) and "lengths" not in case.tensors


ATTENTION_LAWS = (
    scaled("value_scaling", {"v": 2.0}, factor=2.0),
    scaled("value_negation", {"v": -1.0}, factor=-1.0),
    scaled("balance", {"q": 2.0, "k": 0.5}, factor=1.0),
    alone("batch_alone", {"q": 0, "k": 0, "v": 0, "lengths": 0}),
    only_if(_sees_all, reversed_along("keys_reversed", _KEYS)),
    only_if(_sees_past, prefix("causal_prefix", {"q": 2, **_KEYS}, out=2)),
)
"""In the order of trying."""
