"""The rotation of the first part of each head by tables, as in GPT-NeoX; the rest is copied."""

import numpy as np

BACKEND = "numpy"


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


@np.errstate(all="ignore")
def run(out, x, *, cos, sin, style, part):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    width = x.shape[-1] // part
    a, b = _pairs(x[..., :width].astype(wide), style)
    c, s = cos.astype(wide)[:, None], sin.astype(wide)[:, None]
    out[..., width:] = x[..., width:]
    y0, y1 = _pairs(out[..., :width], style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
