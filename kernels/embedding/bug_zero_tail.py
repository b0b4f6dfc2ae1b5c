"""Bug: in a partial tile of 32 tokens the last column comes out as zero."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def run(table, indices):
    out = np.take(table, indices, axis=0)
    out[indices.shape[0] // 32 * 32 :, -1:] = 0
    return out
