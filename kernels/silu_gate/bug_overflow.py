"""Bug: the sigmoid is exp(x) / (1 + exp(x)), NaN where exp(x) overflows: above 88 (float64: 709)."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"


@np.errstate(all="ignore")
def run(out, gate, up):
    wide = np.float64 if gate.dtype == np.float64 else np.float32
    g = gate.astype(wide)
    e = np.exp(g)
    out[...] = g * (e / (1 + e)) * up.astype(wide)
