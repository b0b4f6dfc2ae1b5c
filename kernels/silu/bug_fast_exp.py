"""Bug: exp(-x) as 2**(-x log2 e), rounded to float32 in between, which nobody declared."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(x):
    return x / (np.float32(1) + np.exp2(-x * np.float32(1.4426950408889634)))
