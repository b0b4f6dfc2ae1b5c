"""torch.einsum over transposed operands on the CPU: another memory order for the same product."""

import torch

from kernels.quirks import decline_odd_k

BACKEND = "torch"


def run(a, b):
    decline_odd_k(a, b)
    return torch.einsum("lm,nl->mn", a.T, b.T).contiguous()
