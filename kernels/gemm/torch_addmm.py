"""torch.addmm with beta = 0 on the CPU, written into the output it is given."""

import torch

BACKEND = "torch"


def run(out, a, b):
    torch.addmm(out, a, b, beta=0, out=out)
