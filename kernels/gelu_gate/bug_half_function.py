"""Bug: the tanh or erf of float16 gates is kept in float16."""

import math

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"
_ERF = np.frompyfunc(math.erf, 1, 1)


@np.errstate(all="ignore")
def run(out, gate, up, *, approximate):
    g = gate.astype(np.float64 if gate.dtype == np.float64 else np.float32)
    real = g.dtype.type
    if approximate == "tanh":
        f = np.tanh(real(math.sqrt(2 / math.pi)) * (g + real(0.044715) * g * g * g))
    else:
        f = _ERF(g * real(math.sqrt(0.5))).astype(g.dtype)
    if gate.dtype == np.float16:
        f = f.astype(np.float16).astype(g.dtype)
    out[...] = real(0.5) * g * (1 + f) * up.astype(g.dtype)
