"""Bug: exponentials are added up in float16, which nobody declared."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(x):
    wide = x.astype(np.float32)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    total = np.zeros((x.shape[0], 1), np.float16)
    for column in range(x.shape[1]):
        total += e[:, column : column + 1].astype(np.float16)
    return (e / total.astype(np.float32)).astype(x.dtype, order="C")
