"""Bug: the bias of the last, partial tile of 32 columns is not added."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, bias, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    n = wide(max(1, x.shape[1]))
    a = x.astype(wide)
    a -= a.sum(axis=-1, keepdims=True) / n
    v = (a * a).sum(axis=-1, keepdims=True) / n + wide(eps)
    y = a / np.sqrt(v) * weight.astype(wide)
    full = x.shape[1] // 32 * 32
    y[:, :full] += bias[:full].astype(wide)
    out[...] = y
