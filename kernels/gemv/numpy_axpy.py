"""The loops of the reference BLAS: y times beta, then the columns of a, each times an element of x times alpha."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, a, x, *, y=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    total = np.zeros(out.shape, wide) if y is None or beta == 0 else wide(beta) * y.astype(wide)
    if alpha != 0:
        for column, factor in zip(a.T.astype(wide), wide(alpha) * x.astype(wide), strict=True):
            total += column * factor
    out[...] = total
