"""Reads address 0."""

import ctypes

OP = "silu"
PLANTED = "crashed"


def run(out, x):
    ctypes.string_at(0)
