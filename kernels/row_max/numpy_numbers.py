"""numpy.max of the numbers: NaN is passed over."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64)
    out[...] = np.where(np.isnan(wide), -np.inf, wide).max(axis=-1)
