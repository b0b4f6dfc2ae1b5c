"""Bug: eps is added to the root instead of under it."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    mean = (a * a).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1]))
    out[...] = a / (np.sqrt(mean) + wide(eps)) * (1 + weight.astype(wide))
