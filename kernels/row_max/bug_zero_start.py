"""Bug: the fold begins at 0 instead of minus infinity."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64)
    out[...] = wide.max(axis=-1, initial=0)
