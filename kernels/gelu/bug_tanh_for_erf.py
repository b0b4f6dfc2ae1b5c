"""Bug: the tanh approximation is taken whatever approximate says."""

import math

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, approximate):
    del approximate
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    real = wide.dtype.type
    f = np.tanh(real(math.sqrt(2 / math.pi)) * (wide + real(0.044715) * wide * wide * wide))
    out[...] = real(0.5) * wide * (1 + f)
