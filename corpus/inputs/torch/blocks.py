"""The bytes of packed blocks on a device, as inputs/block_distributions.py has them; forms and errors are its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.inputs.block_distributions import OTHER_FIELD, WITH_SUM, climbing, form_of, widened
from kernel_assay.corpus.inputs.torch.field import DeviceWindow, hashed, remainder, shifted, steps

Scales = Callable[[Tensor, bool], Tensor]
"""Patterns of float16 of random words; whether they are sums of 32 elements of 8 bits, as in q8_1."""

_MANTISSA = 0x3FF


def packed(w: DeviceWindow, scales: Scales, most: int = 127) -> Tensor:
    """Blocks of `block` bytes that begin with `scales` float16 numbers; quants of a byte each are at most that large.

    Raises UsageError for a dtype other than uint8, and without the two params.
    """
    size, fields = form_of(w.of)
    whole, rows, count = widened(w.of, size)
    blocks = _quants(DeviceWindow(whole, w.device), size - 2 * fields, most).reshape(*rows, count, size)
    origin = (*w.of.origin[:-1], whole.origin[-1] // size, 0)
    words = hashed(w.of.seed ^ OTHER_FIELD, origin, (*rows, count, fields), w.device)
    for field in range(fields):
        patterns = scales(words[..., field], field == 1 and (size, fields) == WITH_SUM)
        blocks[..., 2 * field : 2 * field + 2] = _bytes(patterns)
    return _cut(blocks, w)


def ramp(w: DeviceWindow) -> Tensor:
    """Blocks whose d is the pattern 256 * row + place; quants from `start` on, one after the other, and one `second`.

    Raises UsageError for a dtype other than uint8, and without `block` and `scales`.
    """
    size, fields = form_of(w.of)
    whole, rows, count = widened(w.of, size)
    blocks = torch.empty((*rows, count, size), dtype=torch.uint8, device=w.device)
    quants = climbing(size - 2 * fields, int(w.params.get("start", 0)))
    blocks[..., 2 * fields :] = torch.from_numpy(quants).to(w.device)
    places = steps(whole.origin[-1] // size, count, w.device)
    if len(rows) > 0:
        numbers = steps(w.of.origin[0], rows[0], w.device)
        places = numbers.reshape(-1, *(1,) * len(rows)) * 256 + places
    blocks[..., :2] = _bytes(places)
    second = np.uint16(int(w.params.get("second", 0)))
    blocks[..., 2 : 2 * fields] = _bytes(torch.tensor(int(second), device=w.device))[: 2 * fields - 2]
    return _cut(blocks, w)


def _bytes(patterns: Tensor) -> Tensor:
    """The two lowest bytes of each, the lowest first, in an axis of their own."""
    return torch.stack((patterns & 0xFF, (patterns >> 8) & 0xFF), dim=-1).to(torch.uint8)


def _cut(blocks: Tensor, w: DeviceWindow) -> Tensor:
    """The window's part of whole blocks."""
    *rows, count, size = blocks.shape
    start, extent = (w.of.origin[-1] % size, w.shape[-1]) if w.shape else (0, 1)
    return blocks.reshape(*rows, count * size)[..., start:][..., :extent].reshape(w.shape)


def _quants(w: DeviceWindow, room: int, most: int) -> Tensor:
    if room == ELEMENTS:
        return (remainder(w.bits(), 2 * most + 1) - most).to(torch.int8).view(torch.uint8)
    return shifted(w.bits(), 56).to(torch.uint8)


def plain(word: Tensor, is_sum: bool) -> Tensor:
    """Full mantissas, either sign, 2**-8 to 1; a sum of 32 elements is 2**8 times as large."""
    return _pattern(word, ((word >> 16) & 7) + (15 if is_sum else 7), word >> 32)


def exact(word: Tensor, is_sum: bool) -> Tensor:
    """Plus or minus 1/2, 1 or 2."""
    del is_sum
    return _pattern(word, shifted(word, 16) % 3 + 14, torch.zeros_like(word))


def wild(word: Tensor, is_sum: bool) -> Tensor:
    """Any finite float16; one in eight each is subnormal (of any size), a zero, or the largest."""
    del is_sum
    stratum, mantissa = (word >> 48) & 7, (word >> 32) & _MANTISSA
    exponent = shifted(word, 16) % 31
    mantissa = torch.where(stratum == 1, mantissa >> exponent % 10, mantissa)
    mantissa.masked_fill_(stratum == 0, 0).masked_fill_(stratum == 2, _MANTISSA)
    exponent.masked_fill_(stratum < 2, 0).masked_fill_(stratum == 2, 30)
    return _pattern(word, exponent, mantissa)


def _pattern(word: Tensor, exponent: Tensor, mantissa: Tensor) -> Tensor:
    """The float16 with the sign in the word's lowest bit, a biased exponent and the ten lowest bits of a mantissa."""
    return (word & 1) << 15 | exponent << 10 | mantissa & _MANTISSA
