"""Bug: the last tile of 32 columns is padded with zeros, which count in the variance as -mean."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, bias, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    n = wide(max(1, x.shape[1]))
    a = x.astype(wide)
    mean = a.sum(axis=-1, keepdims=True) / n
    a -= mean
    v = ((a * a).sum(axis=-1, keepdims=True) + -x.shape[1] % 32 * mean * mean) / n + wide(eps)
    out[...] = a / np.sqrt(v) * weight.astype(wide) + bias.astype(wide)
