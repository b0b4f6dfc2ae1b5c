"""Pack as GGML does on this processor for the activations of a product: SIMD code for q8_0 and q8_1."""

from kernel_assay.kernels.backends.support.ggml_library import quantize

BACKEND = "ggml"


def run(out, x, *, format):
    quantize(out, x, format, reference=False)
