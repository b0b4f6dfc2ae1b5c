"""Bug: c is added to the product before alpha is applied, which then counts for both."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, *, c=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    total = a.astype(wide) @ b.astype(wide)
    if c is not None:
        total += wide(beta) * c.astype(wide)
    out[...] = wide(alpha) * total
