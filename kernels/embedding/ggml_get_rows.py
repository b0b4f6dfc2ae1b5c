"""ggml_get_rows."""

import numpy as np
from kernels.ggml import compute

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, table, indices):
    compute("get_rows", out, table, indices.astype(np.int32))
