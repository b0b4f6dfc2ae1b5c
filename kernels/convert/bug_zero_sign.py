"""Bug: negative zeros, and what rounds to them, become positive zeros."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, to):
    del to
    out[...] = x.astype(np.float32)
    out[out == 0] = 0
