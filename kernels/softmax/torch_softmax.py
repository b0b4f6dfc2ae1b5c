"""torch.nn.functional.softmax on the CPU."""

import torch

BACKEND = "torch"


def run(out, x):
    out.copy_(torch.nn.functional.softmax(x, dim=-1))
