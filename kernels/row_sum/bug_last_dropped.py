"""Bug: the last element is dropped unless cols is a multiple of 4."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    n = x.shape[1]
    out[...] = x[:, : n - (n % 4 > 0)].astype(wide).sum(axis=-1)
