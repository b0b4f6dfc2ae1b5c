"""Bug: the result saturates at the ends of its 32 bits instead of wrapping."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    acc = a.astype(np.int64) @ b.astype(np.int64)
    out[...] = np.clip(alpha * acc + beta * c.astype(np.int64), -(1 << 31), (1 << 31) - 1)
