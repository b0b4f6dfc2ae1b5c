"""Bug: the last size % 8 elements, which do not fill a vector, take the hard sigmoid."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32).reshape(-1)
    y = wide / (1 + np.exp(-wide))
    full = wide.size // 8 * 8
    y[full:] = wide[full:] * np.clip(wide[full:] / 6 + wide.dtype.type(0.5), 0, 1)
    out[...] = y.reshape(x.shape)
