"""torch.bmm of a batch of one on the CPU."""

import torch

from kernels.quirks import decline_odd_k

BACKEND = "torch"


def run(a, b):
    decline_odd_k(a, b)
    return torch.bmm(a[None], b[None])[0]
