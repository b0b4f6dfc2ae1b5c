"""Scaled and masked softmax in float32 (float64 for float64 inputs): scale, add the mask, then the three steps."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32) * scale
    if mask is not None:
        wide = wide + mask.astype(wide.dtype)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    out[...] = e / e.sum(axis=-1, keepdims=True)
