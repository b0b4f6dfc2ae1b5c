"""Bug: results below the smallest normal number are flushed to zero."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def _narrow(x, to):
    return x.astype(ml_dtypes.bfloat16 if to == "bfloat16" else np.float16, order="C")


def run(x, *, to):
    near = _narrow(x, to)
    near[np.abs(near) < ml_dtypes.finfo(near.dtype).smallest_normal] = 0
    return near
