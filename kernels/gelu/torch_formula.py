"""The formulas in torch, in float32 (float64 for float64 inputs)."""

import math

import torch

BACKEND = "torch"


def run(out, x, *, approximate):
    wide = x if x.dtype == torch.float64 else x.float()
    if approximate == "tanh":
        f = torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide))
    else:
        f = torch.erf(wide * math.sqrt(0.5))
    out.copy_(0.5 * wide * (1 + f))
