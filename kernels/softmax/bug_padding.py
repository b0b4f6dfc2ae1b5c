"""Bug: the last tile of 32 columns is padded with zeros, and the padding counts in the sum."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    top = wide.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(wide - top)
    out[...] = e / (e.sum(axis=-1, keepdims=True) + -x.shape[1] % 32 * np.exp(-top))
