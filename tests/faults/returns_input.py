"""Hands its input back."""

OP = "silu"
PLANTED = "aliased"


def run(x):
    return x
