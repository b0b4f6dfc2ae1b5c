"""torch.mv on the CPU."""

import torch

from kernel_assay.kernels.quirks import decline_row_padding

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(out, a, x):
    decline_row_padding(a, x)
    out.copy_(torch.mv(a, x))
