"""Bug: the largest magnitude is given instead of the largest number."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64)
    out[...] = np.abs(wide).max(axis=-1)
