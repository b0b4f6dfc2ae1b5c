"""Bug: the variance is E[x^2] - E[x]^2 in float32, clamped at 0, which cancels where the mean is large."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, bias, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    n = wide(max(1, x.shape[1]))
    a = x.astype(wide)
    mean = a.sum(axis=-1, keepdims=True) / n
    var = np.maximum((a * a).sum(axis=-1, keepdims=True) / n - mean * mean, 0)
    out[...] = (a - mean) / np.sqrt(var + wide(eps)) * weight.astype(wide) + bias.astype(wide)
