"""torch.addmm with beta = 0 on the CPU, written into the output it is given."""

import torch

from kernel_assay.kernels.quirks import decline_row_padding, decline_tensor_cores

BACKEND = "torch"
DTYPES = ("float32", "float16", "bfloat16", "float64")


def run(out, a, b):
    decline_row_padding(a, b)
    decline_tensor_cores(a)
    torch.addmm(out, a, b, beta=0, out=out)
