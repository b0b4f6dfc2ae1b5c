"""numpy.sum in float32 (float64 for float64 inputs), in pairs."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    out[...] = x.astype(wide).sum(axis=-1)
