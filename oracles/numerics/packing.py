"""Packed blocks that are right for given numbers: several are, where two faithful quantizers may differ.

The C reference computes in float32 what is looked at here in float64. Wherever float32 arithmetic in a customary order
decides, whatever that order may give is right; elsewhere there is one answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import ELEMENTS, BlockFormat, block_format
from kernel_assay.oracles.numerics.blocks import Bytes, Reals, unpack

Mask = NDArray[np.bool_]

_U = 2.0**-24
_SCALE_ERROR = 4.0 * _U
"""Of a computed scale: a difference and a quotient, which may be a product with a rounded reciprocal."""
_QUOTIENT_ERROR = 6.0 * _U
"""Of a computed quotient x / d: d, its reciprocal, the product, and a reciprocal that was made of the largest x."""
_SUM_ERROR = 32.0 * _U
"""Of a sum of 32 numbers, in any order, by their magnitudes."""
_LEAST_SCALE = 2.0**-102
"""Of a smaller d the reciprocal may overflow, and elements be flushed: C leaves the quants open. d is stored as 0."""
_LARGEST = float(np.finfo(np.float32).max) * (1.0 - 1e-6)


@dataclass(frozen=True)
class _Ideal:
    """The ideal of a format for blocks of 32 numbers, unrounded."""

    d: Reals
    """Of shape (..., blocks)."""
    scale_error: float
    second: Reals
    """The min; zeros in formats without one."""
    quotients: Reals
    """Before they are rounded to integers, of shape (..., blocks, 32); without the offset."""
    low: int
    high: int
    open: Mask
    """Blocks whose quants nobody promises, of shape (..., blocks)."""


def right_bytes(packed: Bytes, x: NDArray[np.float32], name: str) -> Mask:
    """True for bytes that a faithful quantizer may give; where a number is wrong, all bytes that it lies in are.

    packed: what was made of x, of shape (..., blocks * bytes of a block); x: finite, of shape (..., blocks * 32).
    """
    fmt = block_format(name)
    numbers = x.reshape(*x.shape[:-1], x.shape[-1] // ELEMENTS, ELEMENTS).astype(np.float64)
    content, ideal = unpack(packed, name), _ideal(numbers, fmt)
    right = np.ones((*content.d.shape, fmt.size), np.bool_)
    right[..., :2] = _stored(content.d, ideal.d, ideal.scale_error * np.abs(ideal.d))[..., None]
    if fmt.second == "min":
        right[..., 2:4] = _stored(content.m, ideal.second, 0.0)[..., None]
    if fmt.second == "sum":
        right[..., 2:4] = _right_sums(content.m, content.quants, ideal.d, numbers)[..., None]
    _mark_quants(right, _right_quants(content.quants - fmt.offset, ideal, fmt), fmt)
    return right.reshape(packed.shape)


def _ideal(x: Reals, fmt: BlockFormat) -> _Ideal:
    size = np.abs(x)
    if fmt.second == "min":
        least, span = x.min(axis=-1), x.max(axis=-1) - x.min(axis=-1)
        d, least_quant, most, base = span / (2**fmt.bits - 1), 0, 2**fmt.bits - 1, least
        error, unruly = _SCALE_ERROR, span > _LARGEST
    elif fmt.bits == 8:
        d, least_quant, most, base = size.max(axis=-1) / 127.0, -127, 127, np.zeros(x.shape[:-1])
        error, unruly = _SCALE_ERROR, np.zeros(d.shape, np.bool_)
    else:
        first = np.take_along_axis(x, size.argmax(axis=-1)[..., None], axis=-1)[..., 0]
        d, least_quant, most, base = first / -fmt.offset, -fmt.offset, fmt.offset - 1, np.zeros(x.shape[:-1])
        error, unruly = 0.0, np.zeros(d.shape, np.bool_)
    quotients = np.divide(x - base[..., None], d[..., None], out=np.zeros_like(x), where=d[..., None] != 0)
    small = (d != 0) & (np.abs(d) < _LEAST_SCALE)
    return _Ideal(d, error, base, quotients, least_quant, most, unruly | small)


def _stored(got: Reals, ideal: Reals, error: Reals | float) -> Mask:
    """Whether these float16 numbers are roundings of reals at most so far away; the sign of a zero is free."""
    with np.errstate(over="ignore"):
        low, high = ((ideal + sign * error).astype(np.float16).astype(np.float64) for sign in (-1.0, 1.0))
    mask: Mask = (low <= got) & (got <= high)
    return mask


def _right_quants(quants: NDArray[np.int32], ideal: _Ideal, fmt: BlockFormat) -> Mask:
    """The nearest integer within the format's range; beside a tie either."""
    room = 0.5 + _QUOTIENT_ERROR * np.abs(ideal.quotients) + _U * (fmt.offset + 1.0)
    low, high = np.ceil(ideal.quotients - room), np.floor(ideal.quotients + room)
    inside = (quants >= np.clip(low, ideal.low, ideal.high)) & (quants <= np.clip(high, ideal.low, ideal.high))
    mask: Mask = inside | ideal.open[..., None]
    return mask


def _right_sums(got: Reals, quants: NDArray[np.int32], d: Reals, x: Reals) -> Mask:
    """Mark right sums of q8_1: of its own quants times the unrounded d (GGML on CPUs), or of the numbers (on GPUs)."""
    by_quants, size = quants.sum(axis=-1) * d, np.abs(x).sum(axis=-1)
    mask: Mask = _stored(got, by_quants, _SCALE_ERROR * np.abs(by_quants)) | (size > _LARGEST)
    mask |= _stored(got, x.sum(axis=-1), _SUM_ERROR * size)
    return mask


def _mark_quants(right: Mask, quants: Mask, fmt: BlockFormat) -> None:
    """Bytes are right if all quants are of which they hold bits."""
    if fmt.bits == 8:
        right[..., fmt.quants :] = quants
        return
    right[..., fmt.quants :] = quants[..., : ELEMENTS // 2] & quants[..., ELEMENTS // 2 :]
    if fmt.bits == 5:
        right[..., fmt.high_bits : fmt.quants] = quants.reshape(*quants.shape[:-1], ELEMENTS // 8, 8).all(axis=-1)
