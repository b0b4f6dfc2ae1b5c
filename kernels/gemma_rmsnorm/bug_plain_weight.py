"""Bug: rows are multiplied by the weight, as in rmsnorm, instead of by one plus the weight."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    v = (a * a).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1])) + wide(eps)
    out[...] = a / np.sqrt(v) * weight.astype(wide)
