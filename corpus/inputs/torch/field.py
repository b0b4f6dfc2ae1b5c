"""The random field of corpus/inputs/field.py on a device, by torch: the same words in the same places.

Torch has no arithmetic for uint64. A word is an int64 here, of which sums, differences, products, left shifts and the
logical operations give the same bits; what asks for the sign has a function of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from kernel_assay.corpus.formats import Format
from kernel_assay.corpus.inputs.field import GAMMA, MASK, MUL_1, MUL_2, ROW, Window, mixed

CARRIERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
"""Bits -> the integer type of that width, to move bit patterns; all signed, for torch computes with few others."""


def dtype_of(fmt: Format) -> torch.dtype:
    """Torch's name of a format; the names are the same."""
    found: torch.dtype = getattr(torch, fmt.name)
    return found


def signed(pattern: int, bits: int = 64) -> int:
    """The number that has this bit pattern in a signed type of that many bits; modulo 2**bits."""
    half = 1 << (bits - 1)
    return (pattern + half) % (2 * half) - half


def patterned(words: Tensor, fmt: Format) -> Tensor:
    """The lowest bits of words as elements of a format."""
    return words.to(CARRIERS[fmt.bits]).view(dtype_of(fmt))


def shifted(words: Tensor, by: int) -> Tensor:
    """Words shifted right by 1 to 63 bits, zeros coming in: `>>` of a signed type would copy the sign."""
    return (words >> by).bitwise_and_((1 << (64 - by)) - 1)


def remainder(words: Tensor, divisor: int) -> Tensor:
    """Unsigned words modulo a divisor from 1 to 2**64 - 1: `%` would take half of the words for negative numbers.

    Raises OverflowError for a larger divisor, as numpy does.
    """
    small = int(np.uint64(divisor).view(np.int64))
    if divisor & (divisor - 1) == 0:
        return words & signed(divisor - 1)
    if small < 0:  # a word holds it once at most
        return torch.where(_at_least(words, small), words - small, words)
    # Half a word is a positive number. Twice its quotient is the word's own, or less by one (Hacker's Delight, 9-3).
    quotient = torch.div(shifted(words, 1), small, rounding_mode="trunc")
    rest = words - quotient.mul_(signed(2 * small))
    rest.sub_(small)
    return rest.add_((rest >> 63).bitwise_and_(small))


def _at_least(words: Tensor, bound: int) -> Tensor:
    """Whether words are at least a bound, all unsigned: flipping the highest bit of both keeps their order."""
    lowest = signed(1 << 63)
    return (words ^ lowest) >= (bound ^ lowest)


def bit_count(words: Tensor) -> Tensor:
    """Count the bits that are set; torch does not. Pairs, then fours, then bytes (Hacker's Delight, 5-1)."""
    count = words - ((words >> 1) & 0x5555555555555555)
    count = (count & 0x3333333333333333).add_((count >> 2).bitwise_and_(0x3333333333333333))
    count = (count + (count >> 4)).bitwise_and_(0x0F0F0F0F0F0F0F0F)
    return count.mul_(0x0101010101010101).bitwise_right_shift_(56)


def real(words: Tensor) -> Tensor:
    """Numbers as float64; of more than 53 bits, the nearest."""
    return words.to(torch.float64)


def power_of_two(exponents: Tensor) -> Tensor:
    """2**k as float64, made of its bits, for -1023 < k < 1024: torch.ldexp asks pow, which may miss by a bit."""
    return ((exponents + 1023) << 52).view(torch.float64)


def _mix(h: Tensor) -> Tensor:
    """Splitmix64's finalizer, in place."""
    h ^= shifted(h, 30)
    h *= signed(int(MUL_1))
    h ^= shifted(h, 27)
    h *= signed(int(MUL_2))
    h ^= shifted(h, 31)
    return h


def steps(start: int, extent: int, device: torch.device) -> Tensor:
    """The numbers start, start + 1, ..., modulo 2**64."""
    return torch.arange(extent, dtype=torch.int64, device=device) + signed(start)


def hashed(seed: int, origin: tuple[int, ...], shape: tuple[int, ...], device: torch.device) -> Tensor:
    """64 random bits for every point of the window that starts at origin and has this shape."""
    root = signed(mixed((seed * int(GAMMA) + len(shape)) & MASK))
    h = torch.full((1,) * len(shape), root, dtype=torch.int64, device=device)
    for axis, (start, extent) in enumerate(zip(origin, shape, strict=True)):
        c = steps(start + 1, extent, device) * signed(int(GAMMA))
        h = _mix(h ^ c.reshape([-1 if a == axis else 1 for a in range(len(shape))]))
    return h


@dataclass(frozen=True)
class DeviceWindow:
    """A window whose words are on a device; what they are is said in corpus/inputs/field.py."""

    of: Window
    device: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the window."""
        return self.of.shape

    @property
    def format(self) -> Format:
        """The element type."""
        return self.of.format

    @property
    def params(self) -> dict[str, int | float]:
        """Parameters of the fill."""
        return self.of.params

    @cached_property
    def _base(self) -> Tensor:
        return hashed(self.of.seed, self.of.origin, self.shape, self.device)

    def bits(self, lane: int = 0) -> Tensor:
        """Independent 64-bit words, one per element; another lane is another word. Not to be written to."""
        if lane == 0:
            return self._base
        return _mix(self._base + signed(lane * int(GAMMA)))

    def uniform(self, lane: int = 0) -> Tensor:
        """Uniform in [0, 1) with 53 random bits."""
        return real(shifted(self.bits(lane), 11)).mul_(2.0**-53)

    def per_row(self, lane: int = 0) -> Tensor:
        """Words shared by all elements of a row (the last axis), broadcastable to the window's shape."""
        if not self.shape:
            return self.bits(lane)
        seed = self.of.seed ^ (lane + 1) * ROW
        return hashed(seed, self.of.origin[:-1], self.shape[:-1], self.device)[..., None]

    def columns(self) -> Tensor:
        """Absolute coordinate along the last axis, broadcastable to the window's shape."""
        if not self.shape:
            return torch.zeros((), dtype=torch.int64, device=self.device)
        return steps(self.of.origin[-1], self.shape[-1], self.device)

    def paired(self) -> DeviceWindow:
        """The window in which columns 2k and 2k+1 show the same value as column 2k."""
        return _Paired(self.of, self.device)

    def filled(self, value: float) -> Tensor:
        """One value everywhere."""
        return torch.full(self.shape, value, dtype=torch.float64, device=self.device)


class _Paired(DeviceWindow):
    @cached_property
    def _base(self) -> Tensor:
        if not self.shape:
            return hashed(self.of.seed, self.of.origin, self.shape, self.device)
        start, extent = self.of.origin[-1], self.shape[-1]
        half = hashed(
            self.of.seed, (*self.of.origin[:-1], start // 2), (*self.shape[:-1], extent // 2 + 1), self.device
        )
        pick = steps(start % 2, extent, self.device) >> 1
        return half.index_select(-1, pick)
