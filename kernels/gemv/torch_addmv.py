"""torch.addmv on the CPU, with alpha, beta and a summand."""

import torch

from kernel_assay.kernels.quirks import decline_narrow_addmv, decline_row_padding

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(out, a, x, *, y=None, alpha, beta):
    decline_narrow_addmv(a, y, alpha)
    decline_row_padding(a, x)
    if y is None:
        torch.addmv(out, a, x, alpha=alpha, beta=0, out=out)
    else:
        torch.addmv(y, a, x, alpha=alpha, beta=beta, out=out)
