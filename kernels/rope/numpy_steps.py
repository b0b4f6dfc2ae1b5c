"""The rotation with one power: from pair to pair the angle is multiplied by theta**(-2/width), as in llama.cpp."""

import numpy as np

BACKEND = "numpy"


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


@np.errstate(all="ignore")
def run(out, x, *, style, theta, offset, part):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    width = x.shape[-1] // part
    step = wide(theta) ** wide(-2 / max(1, width))
    angle = np.full((len(x), 1, width // 2), step)
    angle[..., :1] = np.arange(offset, offset + len(x))[:, None, None]
    angle = np.multiply.accumulate(angle, axis=-1, dtype=wide)
    c, s = np.cos(angle), np.sin(angle)
    a, b = _pairs(x[..., :width].astype(wide), style)
    out[..., width:] = x[..., width:]
    y0, y1 = _pairs(out[..., :width], style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
