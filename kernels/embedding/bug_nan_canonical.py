"""Bug: rows pass through arithmetic, so every NaN becomes the default one."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "mismatch"


def run(table, indices):
    out = np.take(table, indices, axis=0)
    out[np.isnan(out)] = np.nan
    return out
