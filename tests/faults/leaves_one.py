"""Does not write the last element."""

import numpy as np

OP = "silu"
PLANTED = "unwritten"


def run(out, x):
    wide = x.astype(np.float64).reshape(-1)[:-1]
    out.reshape(-1)[:-1] = (wide / (1.0 + np.exp(-wide))).astype(out.dtype)
