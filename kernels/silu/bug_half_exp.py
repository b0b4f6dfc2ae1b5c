"""Bug: float16 inputs take their exponential in float16."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    narrow = np.float16 if x.dtype == np.float16 else wide
    out[...] = x.astype(wide) / (1 + np.exp(-x.astype(narrow)).astype(wide))
