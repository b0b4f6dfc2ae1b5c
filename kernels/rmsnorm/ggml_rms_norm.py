"""ggml_rms_norm, then ggml_mul by the weight."""

import numpy as np

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, x, weight, *, eps):
    normal = np.empty_like(out)
    compute("rms_norm", normal, x, eps)
    compute("mul", out, normal, weight)
