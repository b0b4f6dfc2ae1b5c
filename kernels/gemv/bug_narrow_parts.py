"""Bug: the sums of the eight parts of a split k are rounded to 16 bits before they are added."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16", "bfloat16")
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x):
    parts = np.array_split(np.arange(a.shape[1]), 8)
    sums = [(a[:, p].astype(np.float32) @ x[p].astype(np.float32)).astype(a.dtype) for p in parts]
    out[...] = np.sum(sums, axis=0, dtype=np.float32)
