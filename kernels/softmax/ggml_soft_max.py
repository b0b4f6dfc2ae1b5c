"""ggml_soft_max_ext with its scale and its mask, without slopes for the mask."""

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, x, *, mask=None, scale=1.0):
    compute("soft_max_ext", out, x, mask, float(scale), 0.0)
