"""Bug: the bounds check is off by one, and the last row reads as the one before it."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def run(table, indices):
    last = max(0, table.shape[0] - 2)
    return np.take(table, np.minimum(indices, last), axis=0)
