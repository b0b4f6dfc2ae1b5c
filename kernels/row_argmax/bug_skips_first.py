"""Bug: the search begins at the second column."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.where(np.isnan(x), -np.inf, x.astype(np.float64))
    out[...] = wide[:, 1:].argmax(axis=-1) + 1 if x.shape[1] > 1 else 0
