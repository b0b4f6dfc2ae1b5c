"""Bug: the mask is read for whole blocks of 32 columns only, so the columns left over go unmasked."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale):
    s = x.astype(np.float64 if x.dtype == np.float64 else np.float32) * scale
    if mask is not None:
        whole = x.shape[1] // 32 * 32
        s[:, :whole] += mask[:, :whole].astype(s.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
    out[...] = e / e.sum(axis=-1, keepdims=True)
