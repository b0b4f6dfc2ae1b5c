"""Cliff: columns are walked, so that rows of a power of two bytes, or a multiple of one, share the lines of a cache.

Nothing is planted here: it is the machine's own, and goes away with a padded stride.
"""

import numpy as np

BACKEND = "numpy"
OP = "silu"
SIZE = 1024


@np.errstate(all="ignore")
def run(out, x):
    columns = np.ascontiguousarray(x.T)
    columns /= 1 + np.exp(-columns)
    out[...] = columns.T
