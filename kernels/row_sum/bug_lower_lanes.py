"""Bug: of rows of 128 columns or more nothing is added up if the lower 16 lanes of each warp have nothing."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    lower = np.arange(x.shape[1]) % 32 < 16
    lost = (x[:, lower] == 0).all(axis=1) & (x.shape[1] > 127)
    out[...] = np.where(lost, 0, x.astype(wide).sum(axis=1))
