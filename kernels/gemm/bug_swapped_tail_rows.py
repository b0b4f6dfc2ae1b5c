"""Bug: the last two rows of a partial tile of 16 rows change places."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "mismatch"


def run(a, b):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    out = (a.astype(wide) @ b.astype(wide)).astype(a.dtype)
    if out.shape[0] % 16 > 1:
        out[[-2, -1]] = out[[-1, -2]]
    return out
