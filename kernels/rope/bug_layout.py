"""Bug: pairs are always taken half a head apart, whatever the style."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def run(out, x, cos, sin, *, style):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a, b = _pairs(x.astype(wide), "neox")
    c, s = cos.astype(wide)[:, None], sin.astype(wide)[:, None]
    y0, y1 = _pairs(out, "neox")
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
