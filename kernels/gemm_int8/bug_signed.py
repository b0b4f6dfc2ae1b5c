"""Bug: unsigned bytes are taken for signed ones."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("uint8",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    acc = a.view(np.int8).astype(np.int32) @ b.view(np.int8).astype(np.int32)
    out[...] = np.int32(alpha) * acc + np.int32(beta) * c
