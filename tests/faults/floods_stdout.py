"""Writes 64 MB to standard output and 64 MB to standard error, and is right."""

import os

import numpy as np

OP = "silu"


def run(out, x):
    for _ in range(512):
        os.write(1, b"o" * (1 << 16))
        os.write(2, b"e" * (1 << 16))
    wide = x.astype(np.float64)
    out[...] = (wide / (1.0 + np.exp(-wide))).astype(out.dtype)
