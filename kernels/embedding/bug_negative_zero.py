"""Bug: rows are added to a zeroed buffer, so -0 arrives as +0."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16", "float64")
PLANTED = "mismatch"


def run(out, table, indices):
    rows = np.take(table, indices, axis=0)
    out[...] = np.where(rows == 0, np.zeros((), rows.dtype), rows)
