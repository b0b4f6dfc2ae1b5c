"""torch.nn.functional.rms_norm on the CPU."""

import torch

from kernel_assay.kernels.quirks import decline_infinite_mean

BACKEND = "torch"


def run(out, x, weight, *, eps):
    decline_infinite_mean(x)
    if x.numel():
        out.copy_(torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps))
