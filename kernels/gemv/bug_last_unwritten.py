"""Bug: rows are stored in pairs, and the last of an odd number is never stored."""

import numpy as np

BACKEND = "numpy"
PLANTED = "unwritten"


@np.errstate(all="ignore")
def run(out, a, x):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    m = a.shape[0] // 2 * 2
    out[:m] = a[:m].astype(wide) @ x.astype(wide)
