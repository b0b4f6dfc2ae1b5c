"""BLAS GEMV in its three steps: beta * y, then the product times alpha, in float32 (float64 for float64 inputs).

What alpha = 0 or beta = 0 multiplies is not read, as BLAS has it.
"""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, a, x, *, y=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    total = np.zeros(out.shape, wide) if y is None or beta == 0 else wide(beta) * y.astype(wide)
    out[...] = total if alpha == 0 else total + wide(alpha) * (a.astype(wide) @ x.astype(wide))
