"""Tensor.copy_ into the narrow output on the CPU."""

BACKEND = "torch"


def run(out, x, *, to):
    out.copy_(x)
