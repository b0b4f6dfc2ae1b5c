"""Bug: columns are taken in pairs, and the last of an odd number is skipped, unless it is the only one."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64)
    out[...] = wide[:, : max(1, x.shape[1] // 2 * 2)].max(axis=-1)
