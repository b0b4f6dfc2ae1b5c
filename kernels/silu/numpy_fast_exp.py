"""exp(-x) as 2**(-x log2 e), rounded to float32 in between: what -use_fast_math makes of it, and it says so."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"exp": "fast"}


@np.errstate(all="ignore")
def run(x):
    wide = x.astype(np.float32)
    return (wide / (np.float32(1) + np.exp2(-wide * np.float32(1.4426950408889634)))).astype(x.dtype, order="C")
