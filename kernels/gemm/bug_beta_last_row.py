"""Bug: the last row of a partial tile of 16 rows gets c as it is, not times beta."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, *, c=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    total = wide(alpha) * (a.astype(wide) @ b.astype(wide))
    if c is not None:
        factors = np.full((len(a), 1), beta, wide)
        factors[-1:] = beta if len(a) % 16 == 0 else 1
        total += factors * c.astype(wide)
    out[...] = total
