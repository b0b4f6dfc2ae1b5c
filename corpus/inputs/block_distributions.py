"""The bytes of packed blocks, for the distributions of that name in distributions.py: scales, then quants.

Whole blocks are made, as many as the window touches, and cut to its edges: so every byte depends on its place alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.field import Bits, Window, hashed, remainder

Bytes = NDArray[np.uint8]
Scales = Callable[[Bits, bool], Bits]
"""Patterns of float16 of random words; whether they are sums of 32 elements of 8 bits, as in q8_1."""

WITH_SUM = (36, 2)
"""Bytes and scales of a block of q8_1, the second of which is a sum; not taken from the table, so that a program that
reproduces a failure need not carry the table."""
_MANTISSA = np.uint64(0x3FF)
OTHER_FIELD = 0x2545F491
"""Keeps the words of a block's scales apart from those of its quants."""


def packed(w: Window, scales: Scales, most: int = 127) -> NDArray[Any]:
    """Blocks of `block` bytes that begin with `scales` float16 numbers; quants of a byte each are at most that large.

    Never -128: no quantizer writes it, and kernels that multiply by |x| and x's sign may count on that.
    Raises UsageError for a dtype other than uint8, and without the two params.
    """
    size, fields = form_of(w)
    whole, rows, count = widened(w, size)
    blocks = _quants(whole, size - 2 * fields, most).reshape(*rows, count, size)
    words = hashed(w.seed ^ OTHER_FIELD, (*w.origin[:-1], whole.origin[-1] // size, 0), (*rows, count, fields))
    for field in range(fields):
        patterns = scales(words[..., field], field == 1 and (size, fields) == WITH_SUM)
        blocks[..., 2 * field : 2 * field + 2] = patterns.astype("<u2")[..., None].view(np.uint8)
    return _cut(blocks, w)


def ramp(w: Window) -> NDArray[Any]:
    """Blocks whose d is the pattern 256 * row + place; quants from `start` on, one after the other, and one `second`.

    Raises UsageError for a dtype other than uint8, and without `block` and `scales`.
    """
    size, fields = form_of(w)
    whole, rows, count = widened(w, size)
    blocks = np.empty((*rows, count, size), np.uint8)
    blocks[..., 2 * fields :] = climbing(size - 2 * fields, int(w.params.get("start", 0)))
    places = np.arange(count) + whole.origin[-1] // size
    if len(rows) > 0:
        numbers = np.arange(rows[0]) + w.origin[0]
        places = numbers.reshape(-1, *(1,) * len(rows)) * 256 + places
    blocks[..., :2] = np.asarray(places & 0xFFFF, "<u2")[..., None].view(np.uint8)
    blocks[..., 2 : 2 * fields] = np.array([int(w.params.get("second", 0))], "<u2").view(np.uint8)[: 2 * fields - 2]
    return _cut(blocks, w)


def climbing(room: int, start: int) -> Bytes:
    """The quants start, start + 1, ... of a block, remainder what they can be, in the bytes behind its scales."""
    quants = np.arange(start, start + ELEMENTS)
    if room == ELEMENTS:
        return quants.astype(np.uint8)
    low, high = quants[: ELEMENTS // 2] & 15, quants[ELEMENTS // 2 :] & 15
    fifth = np.packbits((quants >> 4 & 1).astype(np.uint8), bitorder="little")
    packed = np.concatenate([fifth[: max(0, room - ELEMENTS // 2)], low | high << 4]).astype(np.uint8)
    return np.resize(packed, room)  # no format of ours has another room


def widened(w: Window, size: int) -> tuple[Window, tuple[int, ...], int]:
    """The window widened to whole blocks, the extents before its last axis, and how many blocks that one has."""
    start, extent = (w.origin[-1], w.shape[-1]) if w.shape else (0, 1)
    first, last = start // size, -(-(start + extent) // size)
    rows, count = w.shape[:-1], last - first
    return Window(w.seed, (*w.origin[:-1], first * size), (*rows, count * size), w.format, w.params), rows, count


def _cut(blocks: Bytes, w: Window) -> NDArray[Any]:
    """The window's part of whole blocks."""
    *rows, count, size = blocks.shape
    start, extent = (w.origin[-1] % size, w.shape[-1]) if w.shape else (0, 1)
    cut = blocks.reshape(*rows, count * size)[..., start:][..., :extent]
    return cut.copy() if w.shape else cut.reshape(()).copy()


def form_of(w: Window) -> tuple[int, int]:
    """Bytes and scales of a block. Raises UsageError as packed does."""
    if w.format.name != "uint8":
        raise UsageError(f"blocks are packed into uint8; {w.format.name} cannot be filled with them")
    if not {"block", "scales"} <= set(w.params):
        raise UsageError("the distributions of packed blocks need the params block and scales")
    size, fields = int(w.params["block"]), int(w.params["scales"])
    if not 0 <= 2 * fields <= size or size < 1:
        raise UsageError(f"a block of {size} bytes has no room for {fields} scales of float16")
    return size, fields


def _quants(w: Window, room: int, most: int) -> Bytes:
    if room == ELEMENTS:
        signed = remainder(w.bits(), 2 * most + 1).astype(np.int16) - np.int16(most)
        return signed.astype(np.int8).view(np.uint8)
    return (w.bits() >> np.uint64(56)).astype(np.uint8)


def plain(word: Bits, is_sum: bool) -> Bits:
    """Full mantissas, either sign, 2**-8 to 1; a sum of 32 elements is 2**8 times as large."""
    lowest = np.uint64(15 if is_sum else 7)
    return _pattern(word, lowest + (word >> np.uint64(16)) % np.uint64(8), word >> np.uint64(32))


def exact(word: Bits, is_sum: bool) -> Bits:
    """Plus or minus 1/2, 1 or 2."""
    del is_sum
    return _pattern(word, np.uint64(14) + (word >> np.uint64(16)) % np.uint64(3), np.zeros_like(word))


def wild(word: Bits, is_sum: bool) -> Bits:
    """Any finite float16; one in eight each is subnormal (of any size), a zero, or the largest."""
    del is_sum
    stratum, mantissa = (word >> np.uint64(48)) % np.uint64(8), (word >> np.uint64(32)) & _MANTISSA
    any_exponent = (word >> np.uint64(16)) % np.uint64(31)
    small, none = mantissa >> any_exponent % np.uint64(10), np.zeros_like(word)
    kinds = [stratum == 0, stratum == 1, stratum == 2]
    exponent = np.select(kinds, [none, none, none + np.uint64(30)], any_exponent)
    return _pattern(word, exponent, np.select(kinds, [none, small, none + _MANTISSA], mantissa))


def _pattern(word: Bits, exponent: Bits, mantissa: Bits) -> Bits:
    """The float16 with the sign in the word's lowest bit, a biased exponent and the ten lowest bits of a mantissa."""
    pattern: Bits = (word & np.uint64(1)) << np.uint64(15) | exponent << np.uint64(10) | mantissa & _MANTISSA
    return pattern
