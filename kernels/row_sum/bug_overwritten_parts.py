"""Bug: the sum of each 256 columns overwrites that of those before instead of being added to it."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    left = max(0, x.shape[1] - 1) // 256 * 256
    out[...] = x[:, left:].astype(wide).sum(axis=-1)
