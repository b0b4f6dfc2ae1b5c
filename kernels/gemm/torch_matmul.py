"""torch.matmul on the CPU."""

import torch

from kernels.quirks import decline_odd_k

BACKEND = "torch"


def run(a, b):
    decline_odd_k(a, b)
    return torch.matmul(a, b)
