"""Bug: c is added as it is, whatever beta."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    acc = a.astype(np.int32) @ b.astype(np.int32)
    out[...] = np.int32(alpha) * acc + c
