"""Bug: the sum is kept in the 16 bits of the inputs although float32 is promised."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16", "bfloat16")
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x):
    total = np.zeros(a.shape[0], a.dtype)
    for column, factor in zip(a.T.astype(np.float32), x.astype(np.float32), strict=True):
        total = (total + column * factor).astype(a.dtype)
    out[...] = total
