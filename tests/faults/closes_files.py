"""Closes every file descriptor."""

import os

OP = "silu"
PLANTED = "crashed"


def run(out, x):
    os.closerange(0, 256)
