"""ggml_norm, then ggml_mul by the weight and ggml_add of the bias."""

import numpy as np

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, x, weight, bias, *, eps):
    normal, product = np.empty_like(out), np.empty_like(out)
    compute("norm", normal, x, eps)
    compute("mul", product, normal, weight)
    compute("add", out, product, bias)
