"""torch.addmm with all it can do: alpha, beta and a summand."""

import torch

from kernel_assay.kernels.quirks import decline_empty_addmm, decline_row_padding, decline_tensor_cores

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(out, a, b, *, c=None, alpha, beta):
    decline_row_padding(a, b)
    decline_tensor_cores(a)
    if c is None:
        torch.addmm(out, a, b, alpha=alpha, beta=0, out=out)
    else:
        decline_empty_addmm(a, beta)
        torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out)
