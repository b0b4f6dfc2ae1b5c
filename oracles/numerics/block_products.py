"""Products of packed weights and packed activations: the value that stored blocks have, and how wrong it may be.

Of every pair of blocks, products of quants are added as integers, the scales are multiplied, and the activations' sum
makes up for the weights' offset or min (numerics.md 2.2). Stored sums are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import block_format
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Fill
from kernel_assay.oracles.numerics.blocks import Bytes, Unpacked, unpack
from kernel_assay.oracles.numerics.bounds import ACCUMULATOR_UNIT, LAMBDA, grain
from kernel_assay.oracles.spec.contract import ALL, INTERVAL, Budget, Dims, Question, Reals

WEIGHTS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
"""Formats of the weights."""
ACTIVATIONS = ("q8_1", "q8_0")
"""Formats of the activations; q8_0 has no sums, so that those of its quants are used."""

_ROUNDINGS = 4.0
"""Of a pair of blocks: each of its two terms is rounded at most so often before it is added."""
_SHARED = 2
"""Bits that a stored sum may lose where four threads take a quarter of it each."""


@dataclass(frozen=True)
class _Terms:
    """The terms of all pairs of rows, of shape (blocks, m, n)."""

    value: Reals
    size: Reals
    """Sum of the magnitudes of what is added up, single elements wherever a kernel may add them in parts."""
    square: Reals
    """Sum of the squares of the same."""


def product(w: Bytes, a: Bytes, name: str, activations: str) -> Reals:
    """Exactly (45 bits a term), but for the last sum in float64. w: (m, bytes); a: (n, bytes); (m, n)."""
    terms = _terms(w, a, name, activations)
    return np.asarray(terms.value.sum(axis=0))


def product_budget(q: Question, want: Reals, name: str, activations: str) -> Budget:
    """The budget of `product`: some roundings of each term, and of the sum over blocks. 0 where none can happen."""
    w, a = q.inputs["w"], np.atleast_2d(q.inputs["a"])
    terms = _terms(w, a, name, activations)
    blocks, u = len(terms.value), max(ACCUMULATOR_UNIT.get(q.numerics.accumulate, q.u), q.every.unit)
    total = terms.size.sum(axis=0)
    error = np.asarray((_ROUNDINGS + blocks + 2.0) * u * total)
    if q.iid:
        square = terms.square.sum(axis=0)
        drift = blocks * (want**2 / 3.0 + square / 2.0) + _ROUNDINGS * square
        error = np.minimum(error, LAMBDA * u * np.sqrt(drift) + 2.0 * u * np.abs(want))
    acc = format_of(q.numerics.accumulate if q.numerics.accumulate in ACCUMULATOR_UNIT else "float32")
    if q.exact and not q.every:
        step = _grain(unpack(w, name))[:, None] * _grain(unpack(a, activations))
        exact = (total <= 2.0 ** (acc.precision - _SHARED) * step) & (step >= acc.eta)
        error[exact] = 0.0
    beyond = total > 0.999 * min(acc.max, q.every.top)
    accept = np.where(beyond, ALL, INTERVAL).astype(np.uint8) if beyond.any() else None
    return Budget(error, accept)


def block_probe(dims: Dims, dtypes: Mapping[str, str]) -> dict[str, Fill]:
    """Scales of +-2**k and small quants."""
    del dims, dtypes
    return {name: Fill(distribution="exact_blocks") for name in ("w", "a")}


_LATEST: list[tuple[Bytes, Bytes, tuple[str, str], _Terms]] = []
"""The answer is followed by its budget, which wants the same terms."""


def _terms(w: Bytes, a: Bytes, name: str, activations: str) -> _Terms:
    for old_w, old_a, formats, terms in _LATEST:
        if formats == (name, activations) and _same(w, old_w) and _same(a, old_a):
            return terms
    _LATEST[:] = [(w, a, (name, activations), _computed(w, a, name, activations))]
    return _LATEST[0][-1]


def _same(x: Bytes, y: Bytes) -> bool:
    """Whether two arrays are the same memory, which nobody writes to."""
    return x.shape == y.shape and x.strides == y.strides and x.ctypes.data == y.ctypes.data


def _computed(w: Bytes, a: Bytes, name: str, activations: str) -> _Terms:
    fmt, x, y = block_format(name), unpack(w, name), unpack(a, activations)
    stored = activations == "q8_1"
    quants = x.quants.astype(np.float64) - (0 if stored else fmt.offset)
    factors = y.quants.astype(np.float64)
    scale, added = _outer(x.d, y.d), x.m - (fmt.offset * x.d if stored else 0.0)
    sums, sizes, squares = (
        (y.m, np.abs(y.m), y.m**2)
        if stored
        else (y.d * factors.sum(-1), np.abs(y.d) * np.abs(factors).sum(-1), y.d**2 * (factors**2).sum(-1))
    )
    return _Terms(
        scale * _by_blocks(quants, factors, _EXACT) + _outer(added, sums),
        np.abs(scale) * _by_blocks(np.abs(quants), np.abs(factors), _EXACT) + _outer(np.abs(added), sizes),
        scale**2 * _by_blocks(quants**2, factors**2) + _outer(added**2, squares),
    )


def _outer(x: Reals, y: Reals) -> Reals:
    """x[i, b] * y[j, b] as (b, i, j)."""
    return np.asarray(x.T[:, :, None] * y.T[:, None, :])


_EXACT = np.float32
"""Holds all sums of 32 products of two quants: at most 32 * 128 * 128 = 2**19."""


def _by_blocks(x: Reals, y: Reals, dtype: type[np.floating[Any]] = np.float64) -> Reals:
    """Products of blocks of integers, as (b, i, j). dtype: in which they are multiplied and added."""
    x, y = np.ascontiguousarray(x.transpose(1, 0, 2), dtype), np.ascontiguousarray(y.transpose(1, 2, 0), dtype)
    return np.asarray(x @ y, np.float64)


def _grain(content: Unpacked) -> NDArray[np.float64]:
    """The numbers that all scales, mins and sums of each row are multiples of."""
    both = np.concatenate([content.d, content.m], axis=-1)
    return grain(both, axis=-1)[:, 0]
