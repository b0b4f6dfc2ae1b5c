"""Bug: results below the smallest normal number are flushed to zero."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
DTYPES = ("float32",)
PLANTED = "mismatch"
_FLOAT8 = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
_TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, **_FLOAT8}


def _narrow(x, to, saturate):
    top = np.float32(ml_dtypes.finfo(_TYPES[to]).max)
    return (np.clip(x, -top, top) if saturate else x).astype(_TYPES[to], order="C")


@np.errstate(all="ignore")
def run(x, *, to, saturate=False):
    near = _narrow(x, to, saturate)
    near[np.abs(near) < ml_dtypes.finfo(near.dtype).smallest_normal] = 0
    return near
