"""Bug: the maximum is taken before the scale is applied, so with a negative one exponentials overflow."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"


@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale):
    s = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    s = (s - top) * scale
    if mask is not None:
        s = s + mask.astype(s.dtype)
    e = np.exp(s)
    out[...] = e / e.sum(axis=-1, keepdims=True)
