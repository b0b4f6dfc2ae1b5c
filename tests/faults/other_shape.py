"""Returns a flat result."""

import numpy as np

OP = "silu"
PLANTED = "wrong_shape"


def run(x):
    wide = x.astype(np.float64)
    return (wide / (1.0 + np.exp(-wide))).astype(x.dtype).reshape(-1)
