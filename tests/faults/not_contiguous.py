"""Returns a view in Fortran order."""

import numpy as np

OP = "silu"
PLANTED = "wrong_layout"


def run(x):
    wide = x.astype(np.float64)
    return np.asfortranarray((wide / (1.0 + np.exp(-wide))).astype(x.dtype))
