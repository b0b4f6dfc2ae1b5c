"""Cliff: from more than SIZE columns on what is computed first does not stay where it is, and is computed again."""

import numpy as np

BACKEND = "numpy"
OP = "silu"
SIZE = 1000


@np.errstate(all="ignore")
def run(out, x):
    np.exp(-x, out=out)
    if x.shape[1] > SIZE:
        np.exp(-x, out=out)
    out += 1
    np.divide(x, out, out=out)
