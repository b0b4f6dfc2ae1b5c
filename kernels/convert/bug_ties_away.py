"""Bug: ties go away from zero instead of to even."""

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
    bits = near.view(f"u{near.itemsize}")
    error = x.astype(np.float64) - near.astype(np.float64)
    up = (bits + bits.dtype.type(1)).view(near.dtype).astype(np.float64)
    tie = (error != 0) & (np.signbit(error) == np.signbit(x)) & (near.astype(np.float64) + 2 * error == up)
    return (bits + tie.astype(bits.dtype)).view(near.dtype)
