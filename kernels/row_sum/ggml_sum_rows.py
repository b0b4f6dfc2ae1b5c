"""ggml_sum_rows."""

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, x):
    compute("sum_rows", out[:, None], x)
