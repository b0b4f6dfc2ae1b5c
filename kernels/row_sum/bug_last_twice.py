"""Bug: elements are added in pairs, and the last of an odd number is its own partner."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    n = x.shape[1]
    out[...] = x.astype(wide).sum(axis=-1) + x[:, n - n % 2 :].astype(wide).sum(axis=-1)
