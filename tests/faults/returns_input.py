"""Hands its input back."""

import numpy as np

OP = "silu"
PLANTED = "aliased"


def run(x):
    return x
