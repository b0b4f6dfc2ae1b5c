"""Gives another answer every second run."""

import numpy as np

OP = "silu"
PLANTED = "nondeterministic"


STATE = {"calls": 0}


def run(out, x):
    STATE["calls"] += 1
    wide = x.astype(np.float64)
    out[...] = (wide / (1.0 + np.exp(-wide)) * (1.0 + STATE["calls"] % 2)).astype(out.dtype)
