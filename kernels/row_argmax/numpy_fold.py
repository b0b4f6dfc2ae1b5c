"""A fold that keeps the last of what is greater or equal, from minus infinity on."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x):
    top = np.full(x.shape[0], -np.inf)
    out[...] = 0
    for j in range(x.shape[1]):
        better = x[:, j].astype(np.float64) >= top
        top[better] = x[better, j]
        out[better] = j
