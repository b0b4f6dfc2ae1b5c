"""Cliff: rows whose length is no multiple of SIZE are copied into padded ones, and back, in two passes."""

import numpy as np

BACKEND = "numpy"
OP = "silu"
SIZE = 8


def formula(x):
    return x / (1 + np.exp(-x))


@np.errstate(all="ignore")
def run(out, x):
    rows, cols = x.shape
    if cols % SIZE == 0:
        out[...] = formula(x)
        return
    padded = np.zeros((rows, -(-cols // SIZE) * SIZE), x.dtype)
    padded[:, :cols] = x
    formula(padded)
    out[...] = formula(padded)[:, :cols]
