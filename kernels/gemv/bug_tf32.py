"""Bug: float32 operands are cut to the 11 bits of tf32, which nobody declared."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, x):
    cut = ((t.copy().view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for t in (a, x))
    a, x = (np.where(np.isnan(t), t, c) for t, c in zip((a, x), cut, strict=True))
    out[...] = a @ x
