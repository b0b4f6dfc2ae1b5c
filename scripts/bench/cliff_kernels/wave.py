"""Cliff: columns are done in waves of SIZE, of which the last costs as much as a full one."""

import numpy as np

BACKEND = "numpy"
OP = "silu"
SIZE = 256


def formula(x):
    return x / (1 + np.exp(-x))


@np.errstate(all="ignore")
def run(out, x):
    wave = np.zeros((len(x), SIZE), x.dtype)
    for begin in range(0, x.shape[1], SIZE):
        part = x[:, begin : begin + SIZE]
        wave[:, : part.shape[1]] = part
        out[:, begin : begin + SIZE] = formula(wave)[:, : part.shape[1]]
