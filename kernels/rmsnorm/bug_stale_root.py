"""Bug: rows longer than 128 reuse the root of the row before, as if a barrier were missing."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    v = np.square(a).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1])) + wide(eps)
    if x.shape[1] > 128:
        v[1:] = v[:-1].copy()
    out[...] = a / np.sqrt(v) * weight.astype(wide)
