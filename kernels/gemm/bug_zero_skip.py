"""Bug: terms with a zero in a are skipped, so 0 * Inf and 0 * NaN count as 0."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "nonfinite"


def run(a, b):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    dtype = a.dtype
    a, b = a.astype(wide), b.astype(wide)
    out = a @ b
    for j in np.flatnonzero(~np.isfinite(b).all(axis=0)):
        out[:, j] = np.where(a == 0, wide(0), a * b[:, j]).sum(axis=1)
    return out.astype(dtype)
