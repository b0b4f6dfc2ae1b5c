"""quantize_row_*_ref of GGML's library, the C reference."""

from kernels.ggml import quantize

BACKEND = "ggml"


def run(out, x, *, format):
    quantize(out, x, format, reference=True)
