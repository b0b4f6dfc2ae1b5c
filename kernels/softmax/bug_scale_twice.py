"""Bug: the differences to the maximum of scaled values are scaled again, as if the maximum were of plain ones."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale):
    s = x.astype(np.float64 if x.dtype == np.float64 else np.float32) * scale
    if mask is not None:
        s = s + mask.astype(s.dtype)
    e = np.exp((s - s.max(axis=-1, keepdims=True, initial=-np.inf)) * scale)
    out[...] = e / e.sum(axis=-1, keepdims=True)
