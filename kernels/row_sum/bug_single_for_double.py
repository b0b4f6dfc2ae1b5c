"""Bug: float64 inputs are summed in float32."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float64",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    out[...] = x.astype(np.float32).sum(axis=-1)
