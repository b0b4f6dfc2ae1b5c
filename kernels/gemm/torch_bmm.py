"""torch.bmm of a batch of one on the CPU."""

import torch

from kernel_assay.kernels.quirks import decline_row_padding, decline_tensor_cores

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(a, b):
    decline_row_padding(a, b)
    decline_tensor_cores(a)
    return torch.bmm(a[None], b[None])[0]
