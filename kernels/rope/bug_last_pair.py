"""Bug: pairs are rotated in vectors of 8, and the pairs left over pass through unrotated."""

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
    a, b = _pairs(x.astype(wide), style)
    c, s = cos.astype(wide)[:, None], sin.astype(wide)[:, None]
    whole = c.shape[-1] // 8 * 8
    c[..., whole:], s[..., whole:] = 1, 0
    y0, y1 = _pairs(out, style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
