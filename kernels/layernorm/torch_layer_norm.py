"""torch.nn.functional.layer_norm on the CPU."""

import torch

BACKEND = "torch"


def run(out, x, weight, bias, *, eps):
    if x.numel():
        out.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps))
