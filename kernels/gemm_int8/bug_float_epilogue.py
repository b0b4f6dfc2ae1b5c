"""Bug: the epilogue computes in float32, which holds 24 bits of an integer."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    acc = a.astype(np.int32) @ b.astype(np.int32)
    wide = np.float32(alpha) * acc.astype(np.float32) + np.float32(beta) * c.astype(np.float32)
    out[...] = wide.astype(np.float64).astype(np.int64).astype(np.int32)
