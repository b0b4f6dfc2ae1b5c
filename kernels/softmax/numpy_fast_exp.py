"""Exponentials as 2**(z log2 e), rounded to float32 in between: what -use_fast_math makes of them, and it says so."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"exp": "fast"}


@np.errstate(all="ignore")
def run(x):
    wide = x.astype(np.float32)
    top = wide.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp2((wide - top) * np.float32(1.4426950408889634))
    return (e / e.sum(axis=-1, keepdims=True)).astype(x.dtype, order="C")
