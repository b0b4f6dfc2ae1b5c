"""Numbers as bit patterns of the types that numpy does not have; rounded by way of float32, as ml_dtypes does."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernel_assay.corpus.formats import Array


def bfloat16(values: ArrayLike) -> Array:
    """Bit patterns of the nearest bfloat16 numbers."""
    return patterns(values, np.uint16, precision=8, emin=-126, top=0x7F7F, beyond=0x7F80, nan=0x7FC0)


def float8_e4m3fn(values: ArrayLike) -> Array:
    """Bit patterns of the nearest float8_e4m3fn numbers."""
    return patterns(values, np.uint8, precision=4, emin=-6, top=0x7E, beyond=0x7F, nan=0x7F)


def float8_e5m2(values: ArrayLike) -> Array:
    """Bit patterns of the nearest float8_e5m2 numbers."""
    return patterns(values, np.uint8, precision=3, emin=-14, top=0x7B, beyond=0x7C, nan=0x7E)


def patterns(x: ArrayLike, carrier: DTypeLike, *, precision: int, emin: int, top: int, beyond: int, nan: int) -> Array:
    """Bit patterns of the nearest numbers, ties to even, by way of float32; 2**emin is the smallest normal one."""
    real = np.asarray(x, np.float64).astype(np.float32).astype(np.float64)
    size = np.minimum(np.abs(real), 2.0**200)  # Inf has no exponent; NaN stays NaN
    exponent = np.frexp(np.maximum(size, 2.0**emin))[1] - 1
    steps = np.rint(np.ldexp(size, precision - 1 - exponent)) + (exponent - emin) * 2.0 ** (precision - 1)
    found = np.where(np.isnan(real), nan, np.where(steps > top, beyond, steps))
    sign = np.signbit(real) * 2.0 ** (np.dtype(carrier).itemsize * 8 - 1)
    return np.asarray((found + sign).astype(carrier))
