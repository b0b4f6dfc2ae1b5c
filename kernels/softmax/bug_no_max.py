"""Bug: the maximum is not subtracted, so that exponentials overflow."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"


@np.errstate(all="ignore")
def run(out, x):
    e = np.exp(x.astype(np.float64 if x.dtype == np.float64 else np.float32))
    out[...] = e / e.sum(axis=-1, keepdims=True)
