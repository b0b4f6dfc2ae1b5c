"""The loops of the reference BLAS: c times beta, then k rank-one updates whose factor alpha is multiplied into b."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, a, b, *, c=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    y = np.zeros(out.shape, wide) if c is None or beta == 0 else wide(beta) * c.astype(wide)
    if alpha != 0:
        for column, row in zip(a.T.astype(wide), wide(alpha) * b.astype(wide), strict=True):
            y += column[:, None] * row
    out[...] = y
