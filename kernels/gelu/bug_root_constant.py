"""Bug: sqrt(2 / pi) is written as 0.7979."""

import math

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"
_ERF = np.frompyfunc(math.erf, 1, 1)


@np.errstate(all="ignore")
def run(out, x, *, approximate):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    real = wide.dtype.type
    if approximate == "tanh":
        f = np.tanh(real(0.7979) * (wide + real(0.044715) * wide * wide * wide))
    else:
        f = _ERF(wide * real(math.sqrt(0.5))).astype(wide.dtype)
    out[...] = real(0.5) * wide * (1 + f)
