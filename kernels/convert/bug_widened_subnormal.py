"""Bug: numbers are widened by shifting exponent and significand into place; subnormal ones are none of that form."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
DTYPES = ("float16", "float8_e4m3fn", "float8_e5m2")
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(x, *, to, saturate=False):
    dtype, facts = getattr(np, to, None) or getattr(ml_dtypes, to), ml_dtypes.finfo(x.dtype)
    wide = x.astype(np.float32)
    hidden = np.copysign(np.float32(facts.smallest_normal), wide)
    wide = np.where((wide != 0) & (np.abs(wide) < facts.smallest_normal), wide + hidden, wide)
    top = np.float32(ml_dtypes.finfo(dtype).max)
    return (np.clip(wide, -top, top) if saturate else wide).astype(dtype, order="C")
