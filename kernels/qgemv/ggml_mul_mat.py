"""ggml_mul_mat of packed weights with packed activations of the format that it pairs with them."""

from kernel_assay.kernels.backends.support.ggml_library import Packed, compute, partner

BACKEND = "ggml"


def run(out, w, a, *, format, activations):
    if partner(format) != activations:
        raise NotImplementedError(f"ggml multiplies {format} with {partner(format)} only")
    compute("mul_mat", out, Packed(w, format), Packed(a, activations))
