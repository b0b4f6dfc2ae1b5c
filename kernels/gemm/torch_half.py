"""torch.matmul in 16 bits on a GPU: products of tensor cores, and parts of a sum that may be rounded, by default."""

import torch

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"accumulate": "hopper", "intermediates": {"parts": "input"}}
ON_CPU = "torch makes 16-bit products with tensor cores on a GPU only"


def run(a, b):
    if not a.is_cuda:
        raise NotImplementedError(ON_CPU)
    return torch.matmul(a, b)
