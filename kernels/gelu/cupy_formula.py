"""The formulas in float32 (float64 for float64 inputs), with the error function and the tanh of CUDA."""

import math

import cupy
from cupyx.scipy.special import erf

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(out, x, *, approximate):
    wide = x.astype(cupy.float64 if x.dtype == cupy.float64 else cupy.float32)
    real = wide.dtype.type
    if approximate == "tanh":
        f = cupy.tanh(real(math.sqrt(2 / math.pi)) * (wide + real(0.044715) * wide * wide * wide))
    else:
        f = erf(wide * real(math.sqrt(0.5)))
    out[...] = real(0.5) * wide * (1 + f)
