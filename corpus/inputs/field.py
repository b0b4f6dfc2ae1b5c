"""An infinite random field: value = f(seed, coordinates), by integer hashing alone.

A tensor is a window on the field, so cutting rows or columns from either end keeps the values of what is left.
The hash is the finalizer of splitmix64 (Steele, Lea, Flood 2014), applied axis by axis; integer arithmetic remainder
2**64 gives the same bits on every machine and in every library.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.formats import Format

Bits = NDArray[np.uint64]
Reals = NDArray[np.float64]

# Arrays, for numpy makes one of a scalar each time it meets another array, which takes as long as a row of a case does.
GAMMA = np.array(0x9E3779B97F4A7C15, np.uint64)
MUL_1 = np.array(0xBF58476D1CE4E5B9, np.uint64)
MUL_2 = np.array(0x94D049BB133111EB, np.uint64)
_S11, _S27, _S30, _S31 = (np.array(n, np.uint64) for n in (11, 27, 30, 31))
MASK = (1 << 64) - 1
ROW = 0x5851F42D
"""Keeps the words of rows apart from those of elements, and from one another."""


_STEPS = np.arange(1 << 16, dtype=np.uint64) * GAMMA
"""The multiples of coordinates from 0 on: to make them anew takes as long as half of the hash of a row."""


def _steps(first: int, stop: int) -> Bits:
    """The multiples of GAMMA from one coordinate to before another."""
    return _STEPS[first:stop] if stop <= len(_STEPS) else np.arange(first, stop, dtype=np.uint64) * GAMMA


def remainder(words: Bits, divisor: int) -> Bits:
    """The remainders of words, by quotients, which take a quarter of the time for many of them."""
    by = np.uint64(divisor)
    return words - words // by * by


def _mix(h: Bits) -> Bits:
    """Splitmix64's finalizer, in place: every output bit depends on every input bit."""
    h ^= h >> _S30
    h *= MUL_1
    h ^= h >> _S27
    h *= MUL_2
    h ^= h >> _S31
    return h


def mixed(h: int) -> int:
    """The same for one word."""
    h = ((h ^ (h >> 30)) * int(MUL_1)) & MASK
    h = ((h ^ (h >> 27)) * int(MUL_2)) & MASK
    return h ^ (h >> 31)


def hashed(seed: int, origin: tuple[int, ...], shape: tuple[int, ...]) -> Bits:
    """64 random bits for every point of the window that starts at origin and has this shape."""
    h = np.array(mixed((seed * int(GAMMA) + len(shape)) & MASK), np.uint64)
    for start, extent in zip(origin, shape, strict=True):
        h = _mix(h[..., None] ^ _steps(start + 1, start + extent + 1))
    return h


@dataclass(frozen=True)
class Window:
    """What a distribution may look at: the field through a window, the element type and the fill's parameters."""

    seed: int
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    format: Format
    params: dict[str, int | float] = field(default_factory=dict)

    @cached_property
    def _base(self) -> Bits:
        return hashed(self.seed, self.origin, self.shape)

    def bits(self, lane: int = 0) -> Bits:
        """Independent 64-bit words, one per element; another lane is another word."""
        if lane == 0:
            return self._base
        return _mix(self._base + np.uint64((lane * int(GAMMA)) & MASK))

    def uniform(self, lane: int = 0) -> Reals:
        """Uniform in [0, 1) with 53 random bits."""
        return (self.bits(lane) >> _S11).astype(np.float64) * 2.0**-53

    def per_row(self, lane: int = 0) -> Bits:
        """Words shared by all elements of a row (the last axis), broadcastable to the window's shape."""
        if not self.shape:
            return self.bits(lane)
        return hashed(self.seed ^ (lane + 1) * ROW, self.origin[:-1], self.shape[:-1])[..., None]

    def columns(self) -> NDArray[np.int64]:
        """Absolute coordinate along the last axis, broadcastable to the window's shape."""
        if not self.shape:
            return np.zeros((), np.int64)
        return np.arange(self.origin[-1], self.origin[-1] + self.shape[-1], dtype=np.int64)

    def paired(self) -> "Window":
        """The window in which columns 2k and 2k+1 show the same value as column 2k."""
        return _Paired(self.seed, self.origin, self.shape, self.format, self.params)

    def filled(self, value: float) -> Reals:
        """One value everywhere."""
        return np.full(self.shape, value)


class _Paired(Window):
    @cached_property
    def _base(self) -> Bits:
        if not self.shape:
            return hashed(self.seed, self.origin, self.shape)
        start, extent = self.origin[-1], self.shape[-1]
        whole = hashed(self.seed, (*self.origin[:-1], start // 2), (*self.shape[:-1], extent // 2 + 1))
        pick: NDArray[Any] = np.arange(start, start + extent) // 2 - start // 2
        return np.ascontiguousarray(whole[..., pick])
