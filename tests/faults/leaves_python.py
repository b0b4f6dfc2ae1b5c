"""Calls sys.exit()."""

import sys

OP = "silu"
PLANTED = "raised"


def run(out, x):
    sys.exit(0)
