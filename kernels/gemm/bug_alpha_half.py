"""Bug: alpha arrives as a float16."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, *, c=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    total = wide(np.float16(alpha)) * (a.astype(wide) @ b.astype(wide))
    out[...] = total if c is None else total + wide(beta) * c.astype(wide)
