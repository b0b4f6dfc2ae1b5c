"""Bug: the last column is left out of the sum of rows longer than one."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    out[...] = e / e[:, : max(1, x.shape[1] - 1)].sum(axis=-1, keepdims=True)
