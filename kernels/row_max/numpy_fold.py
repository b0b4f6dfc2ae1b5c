"""A fold that begins at minus infinity and keeps what is greater, as many kernels do."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x):
    top = np.full(x.shape[0], -np.inf, np.float64)
    for j in range(x.shape[1]):
        top = np.where(x[:, j] > top, x[:, j], top)
    out[...] = top
