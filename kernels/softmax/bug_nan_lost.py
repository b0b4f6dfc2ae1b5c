"""Bug: a NaN loses every comparison and is taken for a masked element."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"


@np.errstate(all="ignore")
def run(out, x):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    top = np.fmax.reduce(wide, axis=-1, keepdims=True, initial=-np.inf)
    e = np.nan_to_num(np.exp(wide - top), nan=0)
    out[...] = e / e.sum(axis=-1, keepdims=True)
