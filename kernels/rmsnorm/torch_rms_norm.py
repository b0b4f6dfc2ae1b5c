"""torch.nn.functional.rms_norm on the CPU."""

import torch

BACKEND = "torch"


def run(out, x, weight, *, eps):
    if x.numel():
        out.copy_(torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps))
