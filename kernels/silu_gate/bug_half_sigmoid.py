"""Bug: the sigmoid of float16 gates is taken in float16."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, gate, up):
    wide = np.float64 if gate.dtype == np.float64 else np.float32
    narrow = gate.astype(np.float16 if gate.dtype == np.float16 else wide)
    out[...] = gate.astype(wide) * (1 / (1 + np.exp(-narrow))).astype(wide) * up.astype(wide)
