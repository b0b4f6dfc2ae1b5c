"""Bug: the last k % 4 products are left out, as they do not fill a dot product of four."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    full = a.shape[1] // 4 * 4
    acc = a[:, :full].astype(np.int32) @ b[:full].astype(np.int32)
    out[...] = np.int32(alpha) * acc + np.int32(beta) * c
