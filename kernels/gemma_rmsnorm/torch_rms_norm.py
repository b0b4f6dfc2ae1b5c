"""torch.nn.functional.rms_norm in float32 with the weight plus one."""

import torch

from kernel_assay.kernels.quirks import decline_infinite_mean

BACKEND = "torch"


def run(out, x, weight, *, eps):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    decline_infinite_mean(x)
    if x.numel():
        out.copy_(torch.nn.functional.rms_norm(x.to(wide), x.shape[-1:], 1 + weight.to(wide), eps))
