"""Bug: float32 operands are cut to the 11 bits of tf32, which nobody declared."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32",)
PLANTED = "mismatch"


def run(a, b):
    a, b = ((x.copy().view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    return a @ b
