"""Bug: the activation is rounded to 16 bits before it is multiplied by up."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16", "bfloat16")
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, gate, up):
    wide = np.float64 if gate.dtype == np.float64 else np.float32
    g = gate.astype(wide)
    act = (g / (1 + np.exp(-g))).astype(gate.dtype)
    out[...] = act.astype(wide) * up.astype(wide)
