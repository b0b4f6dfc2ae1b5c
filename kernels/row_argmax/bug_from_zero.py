"""Bug: the running maximum begins at zero, so that rows of negative numbers keep the place 0."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.where(np.isnan(x), -np.inf, x.astype(np.float64))
    out[...] = np.where(wide.max(axis=-1) > 0, wide.argmax(axis=-1), 0)
