"""dequantize_row_* of GGML's library, row after row in C."""

from kernel_assay.kernels.backends.support.ggml_library import dequantize

BACKEND = "ggml"


def run(out, w, *, format):
    dequantize(out, w, format)
