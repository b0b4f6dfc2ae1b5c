"""Bug: the sum of squares leaves out the last cols % 32 elements, unless they are the only ones."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, weight, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    full = x.shape[1] // 32 * 32 or x.shape[1]
    v = np.square(a[:, :full]).sum(axis=-1, keepdims=True) / wide(max(1, x.shape[1])) + wide(eps)
    out[...] = a / np.sqrt(v) * (1 + weight.astype(wide))
