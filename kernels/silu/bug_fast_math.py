"""Bug: what -use_fast_math makes of it, in a kernel that does not say so."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32",)
PLANTED = "mismatch"


def _flushed(x):
    return np.where(np.abs(x) < np.float32(2.0**-126), np.float32(0), x)


def _reciprocal(x):
    """Drop the last bit of a reciprocal."""
    bits = (np.float32(1) / x).view(np.uint32) & np.uint32(0xFFFFFFFE)
    return _flushed(bits.view(np.float32))


@np.errstate(all="ignore")
def run(x):
    wide = _flushed(x.astype(np.float32))
    e = _flushed(np.exp2(wide * np.float32(-1.4426950408889634)))
    return _flushed(wide * _reciprocal(np.float32(1) + e)).astype(x.dtype, order="C")
