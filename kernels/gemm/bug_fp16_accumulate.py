"""Bug: the sum is kept in float16 although float32 is promised."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


def run(a, b):
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for column, row in zip(a.T.astype(np.float32), b.astype(np.float32), strict=True):
        total = (total + column[:, None] * row).astype(np.float16)
    return total
