"""numpy's own float32 to float16 and ml_dtypes' to the others; clipped first if it must saturate."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(x, *, to, saturate=False):
    dtype = np.float16 if to == "float16" else getattr(ml_dtypes, to)
    top = np.float32(ml_dtypes.finfo(dtype).max)
    return (np.clip(x, -top, top) if saturate else x).astype(dtype, order="C")
