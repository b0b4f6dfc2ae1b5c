"""Bug: where k is a multiple of 32 the loop over what is left takes the last tile again."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    a, x = a.astype(wide), x.astype(wide)
    full, left = x.size // 32 * 32, max(0, x.size - 1) // 32 * 32
    out[...] = a[:, :full] @ x[:full] + a[:, left:] @ x[left:]
