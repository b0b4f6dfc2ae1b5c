"""Bug: the exponent of pair i is i / width, half of what it must be."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


@np.errstate(all="ignore")
def run(out, x, *, style, theta, offset, part):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    width = x.shape[-1] // part
    power = wide(theta) ** -(np.arange(width // 2).astype(wide) / wide(max(1, width)))
    angle = np.arange(offset, offset + len(x)).astype(wide)[:, None, None] * power
    c, s = np.cos(angle), np.sin(angle)
    a, b = _pairs(x[..., :width].astype(wide), style)
    out[..., width:] = x[..., width:]
    y0, y1 = _pairs(out[..., :width], style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
