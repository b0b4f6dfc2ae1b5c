"""Writes one element behind its output."""

import numpy as np

OP = "silu"
PLANTED = "out_of_bounds"


def run(out, x):
    np.copyto(out, x)
    longer = np.lib.stride_tricks.as_strided(out.reshape(-1), (out.size + 1,), (out.itemsize,))
    longer[-1] = 1.0
