"""Returns float64 whatever it is given."""

import numpy as np

OP = "silu"
PLANTED = "wrong_dtype"


DTYPES = ("float32", "float16")


def run(x):
    wide = x.astype(np.float64)
    return wide / (1.0 + np.exp(-wide))
