"""Bug: the first tile of 64 columns that has nothing but zeros ends a row, though more may follow."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    total, going = np.zeros(x.shape[0], wide), np.ones(x.shape[0], bool)
    for begin in range(0, x.shape[1], 64):
        tile = x[:, begin : begin + 64].astype(wide)
        going &= (tile != 0).any(axis=1)
        total = np.where(going, total + tile.sum(axis=1), total)
    out[...] = total
