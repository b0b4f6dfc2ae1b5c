"""ggml_get_rows."""

import numpy as np

from kernel_assay.kernels.backends.support.ggml_library import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, table, indices):
    compute("get_rows", out, table, indices.astype(np.int32))
