"""Bug: the variance is divided by n - 1."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, bias, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    a -= a.sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1]))
    v = (a * a).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1] - 1)) + wide(eps)
    out[...] = a / np.sqrt(v) * weight.astype(wide) + bias.astype(wide)
