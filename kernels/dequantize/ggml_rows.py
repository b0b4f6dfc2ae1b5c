"""dequantize_row_* of GGML's library, row after row in C."""

from kernels.ggml import dequantize

BACKEND = "ggml"


def run(out, w, *, format):
    dequantize(out, w, format)
