"""gate / (1 + exp(-gate)) * up in float32 (float64 for float64 inputs), one launch for each operation."""

import cupy

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(out, gate, up):
    wide = cupy.float64 if gate.dtype == cupy.float64 else cupy.float32
    g = gate.astype(wide)
    out[...] = g / (1 + cupy.exp(-g)) * up.astype(wide)
