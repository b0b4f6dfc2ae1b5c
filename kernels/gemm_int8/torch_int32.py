"""torch.matmul in int32, which wraps."""

import torch

BACKEND = "torch"


def run(out, a, b, c, *, alpha, beta):
    out.copy_(alpha * torch.matmul(a.int(), b.int()) + beta * c)
