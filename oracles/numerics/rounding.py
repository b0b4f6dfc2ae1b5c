"""Correctly rounded conversion of reals to any float format."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, Format

Reals = NDArray[np.float64]


def round_to(x: Reals, fmt: Format) -> Array:
    """The nearest value of a float format for every real, ties to even, rounded once.

    x: float64, any shape. The result has x's shape and fmt's dtype. Beyond the overflow threshold it is Inf, or NaN
    in a format that has no Inf (float8_e4m3fn: above 464), as in ml_dtypes. NaN stays NaN, zeros keep their sign.

    ml_dtypes converts float64 to bfloat16 and to the 8-bit formats by way of float32 and so rounds twice. Rounding to
    odd in float32 first makes the second rounding right (Boldo and Melquiond 2008; numerics.md 1).
    Raises UsageError for an integer format.
    """
    if not fmt.is_float:
        raise UsageError(f"{fmt.name} is no float format; there is nothing to round to")
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow: Array = x if fmt.precision >= 24 or fmt.name == "float16" else _to_odd(x)
        return narrow.astype(fmt.dtype)


def _to_odd(x: Reals) -> NDArray[np.float32]:
    """Float32 cut towards zero, with the last bit set wherever something was cut; overflow becomes the largest."""
    near = x.astype(np.float32)
    exact = (near == x) | np.isnan(x)
    bits: NDArray[Any] = np.atleast_1d(near).view(np.uint32).reshape(near.shape)
    # One pattern less is the next value towards zero, for either sign; from Inf it is the largest finite value.
    cut = bits - (np.abs(near) > np.abs(x)).astype(np.uint32)
    odd: NDArray[np.uint32] = np.atleast_1d(np.where(exact, bits, cut | np.uint32(1)).astype(np.uint32))
    return odd.view(np.float32).reshape(x.shape)
