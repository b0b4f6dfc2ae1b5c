"""Bug: the mask is added before the scale is applied, and is scaled with the rest."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale):
    s = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    if mask is not None:
        s = s + mask.astype(s.dtype)
    s = s * scale
    e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
    out[...] = e / e.sum(axis=-1, keepdims=True)
