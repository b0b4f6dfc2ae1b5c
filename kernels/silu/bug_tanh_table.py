"""Bug: the sigmoid is 0.5 + 0.5 tanh(x / 2) with a float16 tanh."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    t = np.tanh(wide / 2).astype(np.float16).astype(wide.dtype)
    out[...] = wide * (t / 2 + wide.dtype.type(0.5))
