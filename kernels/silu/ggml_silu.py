"""ggml_silu; float16 by way of float32."""

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32", "float16")


def run(out, x):
    compute("silu", out, x)
