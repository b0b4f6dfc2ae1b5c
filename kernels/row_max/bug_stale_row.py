"""Bug: rows longer than 128 give the maximum of the row before, as if a barrier were missing."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64)
    top = wide.max(axis=-1)
    if x.shape[1] > 128:
        top[1:] = top[:-1].copy()
    out[...] = top
