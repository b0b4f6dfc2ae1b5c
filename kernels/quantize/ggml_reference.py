"""quantize_row_*_ref of GGML's library, the C reference."""

from kernel_assay.kernels.backends.support.ggml_library import quantize

BACKEND = "ggml"


def run(out, x, *, format):
    quantize(out, x, format, reference=True)
