"""torch.matmul on a GPU with float32 operands rounded to tf32, as torch.backends.cuda.matmul.allow_tf32 has it."""

import torch

BACKEND = "torch"
DTYPES = ("float32",)
NUMERICS = {"accumulate": "hopper", "tf32": "rn"}
torch.backends.cuda.matmul.allow_tf32 = True
ON_CPU = "torch rounds to tf32 on a GPU only"


def run(a, b):
    if not a.is_cuda:
        raise NotImplementedError(ON_CPU)
    return torch.matmul(a, b)
