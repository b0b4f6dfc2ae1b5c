"""Leaves the process with code 0."""

import os

OP = "silu"
PLANTED = "crashed"


def run(out, x):
    os._exit(0)
