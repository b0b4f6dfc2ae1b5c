"""Bug: elements are stored in pairs, and the last of an odd number is never stored."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "unwritten"


def run(out, a, b):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    flat = (a.astype(wide) @ b.astype(wide)).astype(a.dtype).reshape(-1)
    paired = flat.size // 2 * 2
    out.reshape(-1)[:paired] = flat[:paired]
