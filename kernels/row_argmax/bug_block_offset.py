"""Bug: rows are searched in blocks of 256, and the place is one within its block."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.where(np.isnan(x), -np.inf, x.astype(np.float64))
    out[...] = wide.argmax(axis=-1) % 256
