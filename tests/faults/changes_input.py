"""Computes in place, then copies."""

import numpy as np

OP = "silu"
PLANTED = "input_mutated"


def run(out, x):
    wide = x.astype(np.float64)
    x[...] = (wide / (1.0 + np.exp(-wide))).astype(x.dtype)
    out[...] = x
