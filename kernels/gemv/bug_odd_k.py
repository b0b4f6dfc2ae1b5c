"""Bug: terms are taken in pairs, and the last of an odd number is dropped."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    k = x.shape[0] // 2 * 2
    out[...] = a[:, :k].astype(wide) @ x[:k].astype(wide)
