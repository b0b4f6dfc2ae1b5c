"""Bug: gate and up change places."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, gate, up):
    wide = np.float64 if gate.dtype == np.float64 else np.float32
    g = gate.astype(wide)
    u = up.astype(wide)
    out[...] = u / (1 + np.exp(-u)) * g
