"""Bug: the last k % 32 terms are dropped, unless they are the only ones."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "mismatch"


def run(a, b):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    k = b.shape[0] // 32 * 32 or b.shape[0]
    return (a[:, :k].astype(wide) @ b[:k].astype(wide)).astype(a.dtype)
