"""GELU of the gate times up in float32 (float64 for float64 inputs), with the error function and the tanh of CUDA."""

import math

import cupy
from cupyx.scipy.special import erf

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(out, gate, up, *, approximate):
    g = gate.astype(cupy.float64 if gate.dtype == cupy.float64 else cupy.float32)
    real = g.dtype.type
    if approximate == "tanh":
        f = cupy.tanh(real(math.sqrt(2 / math.pi)) * (g + real(0.044715) * g * g * g))
    else:
        f = erf(g * real(math.sqrt(0.5)))
    out[...] = real(0.5) * g * (1 + f) * up.astype(g.dtype)
