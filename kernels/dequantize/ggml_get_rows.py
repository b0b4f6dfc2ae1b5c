"""ggml_get_rows of all rows in order, as when embeddings are looked up."""

import numpy as np

from kernel_assay.kernels.backends.support.ggml_library import Packed, compute

BACKEND = "ggml"


def run(out, w, *, format):
    if format == "q8_1":
        raise NotImplementedError("ggml_get_rows does not take q8_1")
    compute("get_rows", out, Packed(w, format), np.arange(w.shape[0], dtype=np.int32))
