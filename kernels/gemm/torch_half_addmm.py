"""torch.addmm in 16 bits on a GPU, with alpha, beta and a summand; sums stay in float32."""

import torch

from kernel_assay.kernels.quirks import decline_empty_addmm, decline_rounded_product

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"accumulate": "hopper"}
MATMUL = torch.backends.cuda.matmul
MATMUL.allow_fp16_reduced_precision_reduction = MATMUL.allow_bf16_reduced_precision_reduction = False
ON_CPU = "torch makes 16-bit products with tensor cores on a GPU only"


def run(out, a, b, *, c=None, alpha, beta):
    if not a.is_cuda:
        raise NotImplementedError(ON_CPU)
    if c is None:
        torch.addmm(out, a, b, alpha=alpha, beta=0, out=out)
    else:
        decline_empty_addmm(a, beta)
        decline_rounded_product(a, b, beta)
        torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out)
