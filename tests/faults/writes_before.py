"""Writes one element before its output."""

import ctypes

import numpy as np

OP = "silu"
PLANTED = "out_of_bounds"


def run(out, x):
    np.copyto(out, x)
    address = out.ctypes.data - out.itemsize
    ctypes.memset(address, 1, out.itemsize)
