"""Bug: each half of a split k adds beta * y, unless there is only one column."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x, *, y=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    a, x, half = a.astype(wide), x.astype(wide), len(x) // 2
    added = 0 if y is None else wide(beta) * y.astype(wide)
    total = wide(alpha) * (a[:, half:] @ x[half:]) + added
    out[...] = total + wide(alpha) * (a[:, :half] @ x[:half]) + added if half else total
