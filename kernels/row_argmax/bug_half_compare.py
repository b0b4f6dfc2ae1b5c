"""Bug: numbers are compared in float16, where close ones are equal and large ones are all infinite."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "bfloat16", "float64")
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    out[...] = np.where(np.isnan(x), -np.inf, x.astype(np.float64)).astype(np.float16).argmax(axis=-1)
