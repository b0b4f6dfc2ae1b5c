"""Bug: the last size % 8 elements, which do not fill a vector, are not multiplied by up."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, gate, up):
    wide = np.float64 if gate.dtype == np.float64 else np.float32
    g = gate.astype(wide)
    u = up.astype(wide).reshape(-1)
    u[u.size // 8 * 8 :] = 1
    out[...] = g / (1 + np.exp(-g)) * u.reshape(up.shape)
