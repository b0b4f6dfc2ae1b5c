"""Products of 8-bit floats: both operands looked up as float32 in a table of all 256, as kernels without fp8 do."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float8_e4m3fn", "float8_e5m2")


def _widened(x):
    table = np.arange(256, dtype=np.uint8).view(x.dtype).astype(np.float32)
    return table[x.view(np.uint8)]


@np.errstate(all="ignore")
def run(a, b):
    return _widened(a) @ _widened(b)
