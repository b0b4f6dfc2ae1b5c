"""Bug: the last size % 8 elements, which do not fill a vector, take x / (1 + exp(-1.702 x))."""

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
        f = np.tanh(real(math.sqrt(2 / math.pi)) * (wide + real(0.044715) * wide * wide * wide))
    else:
        f = _ERF(wide * real(math.sqrt(0.5))).astype(wide.dtype)
    y = (real(0.5) * wide * (1 + f)).reshape(-1)
    full = y.size // 8 * 8
    tail = wide.reshape(-1)[full:]
    y[full:] = tail / (1 + np.exp(real(-1.702) * tail))
    out[...] = y.reshape(x.shape)
