"""Bug: bits are cut off instead of rounded to nearest even."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def _narrow(x, to):
    return x.astype(ml_dtypes.bfloat16 if to == "bfloat16" else np.float16, order="C")


def run(x, *, to):
    near = _narrow(x, to)
    over = np.abs(near.astype(np.float32)) > np.abs(x)
    bits = near.view(np.uint16)
    return (bits - over.astype(np.uint16)).view(near.dtype)
