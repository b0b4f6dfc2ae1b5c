"""torch.nn.functional.layer_norm."""

import torch

from kernel_assay.kernels.quirks import decline_wide_row

BACKEND = "torch"


def run(out, x, weight, bias, *, eps):
    decline_wide_row(x)
    if x.numel():
        out.copy_(torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps))
