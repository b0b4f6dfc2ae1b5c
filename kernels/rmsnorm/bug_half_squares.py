"""Bug: squares of float16 inputs are taken in float16, where they overflow above 255 and lose bits before."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(np.float16 if x.dtype == np.float16 else wide)
    v = (a * a).astype(wide).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1])) + wide(eps)
    out[...] = x.astype(wide) / np.sqrt(v) * weight.astype(wide)
