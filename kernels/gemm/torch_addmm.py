"""torch.addmm with beta = 0 on the CPU, written into the output it is given."""

import torch

from kernels.quirks import decline_odd_k

BACKEND = "torch"


def run(out, a, b):
    decline_odd_k(a, b)
    torch.addmm(out, a, b, beta=0, out=out)
