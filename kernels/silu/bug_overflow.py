"""Bug: the sigmoid is exp(x) / (1 + exp(x)), NaN where exp(x) overflows: above 88 (float64: 709)."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    e = np.exp(wide)
    out[...] = wide * (e / (1 + e))
