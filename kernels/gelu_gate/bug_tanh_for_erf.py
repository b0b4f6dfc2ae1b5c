"""Bug: the tanh approximation is taken whatever approximate says."""

import math

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, gate, up, *, approximate):
    del approximate
    g = gate.astype(np.float64 if gate.dtype == np.float64 else np.float32)
    real = g.dtype.type
    f = np.tanh(real(math.sqrt(2 / math.pi)) * (g + real(0.044715) * g * g * g))
    out[...] = real(0.5) * g * (1 + f) * up.astype(g.dtype)
