"""BLAS GEMM in its three steps: beta * c, then the product times alpha, in float32 (float64 for float64 inputs).

What alpha = 0 or beta = 0 multiplies is not read, as BLAS has it.
"""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, a, b, *, c=None, alpha, beta):
    wide = np.float64 if a.dtype == np.float64 else np.float32
    y = np.zeros(out.shape, wide) if c is None or beta == 0 else wide(beta) * c.astype(wide)
    out[...] = y if alpha == 0 else y + wide(alpha) * (a.astype(wide) @ b.astype(wide))
