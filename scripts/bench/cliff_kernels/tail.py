"""Cliff: whole blocks of SIZE columns are done at once, what is left column by column."""

import numpy as np

BACKEND = "numpy"
OP = "silu"
SIZE = 128


def formula(x):
    return x / (1 + np.exp(-x))


@np.errstate(all="ignore")
def run(out, x):
    whole = x.shape[1] // SIZE * SIZE
    out[:, :whole] = formula(x[:, :whole])
    for column in range(whole, x.shape[1]):
        out[:, column] = formula(x[:, column])
