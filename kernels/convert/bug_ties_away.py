"""Bug: ties go away from zero instead of to even."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def _narrow(x, to):
    return x.astype(ml_dtypes.bfloat16 if to == "bfloat16" else np.float16, order="C")


def run(x, *, to):
    near = _narrow(x, to)
    error = x.astype(np.float64) - near.astype(np.float64)
    up = (near.view(np.uint16) + np.uint16(1)).view(near.dtype).astype(np.float64)
    tie = (error != 0) & (np.signbit(error) == np.signbit(x)) & (near.astype(np.float64) + 2 * error == up)
    return (near.view(np.uint16) + tie.astype(np.uint16)).view(near.dtype)
