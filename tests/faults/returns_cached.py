"""Hands out the same memory for every result of a shape."""

import numpy as np

OP = "silu"
PLANTED = "aliased"
ROOMS = {}


def run(x):
    out = ROOMS.setdefault((x.shape, x.dtype.name), np.empty_like(x, order="C"))
    w = x.astype(np.float64)
    out[...] = w / (1.0 + np.exp(-w))
    return out
