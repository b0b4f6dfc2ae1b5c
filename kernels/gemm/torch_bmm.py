"""torch.bmm of a batch of one on the CPU."""

import torch

from kernels.quirks import decline_row_padding

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(a, b):
    decline_row_padding(a, b)
    return torch.bmm(a[None], b[None])[0]
