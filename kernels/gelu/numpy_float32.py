"""The formulas in float32 (float64 for float64 inputs), the error function from the C library."""

import math

import numpy as np

BACKEND = "numpy"
_ERF = np.frompyfunc(math.erf, 1, 1)


@np.errstate(all="ignore")
def run(out, x, *, approximate):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    real = wide.dtype.type
    if approximate == "tanh":
        f = np.tanh(real(math.sqrt(2 / math.pi)) * (wide + real(0.044715) * wide * wide * wide))
    else:
        f = _ERF(wide * real(math.sqrt(0.5))).astype(wide.dtype)
    out[...] = real(0.5) * wide * (1 + f)
