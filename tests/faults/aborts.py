"""Calls abort()."""

import os

OP = "silu"
PLANTED = "crashed"


def run(out, x):
    os.abort()
