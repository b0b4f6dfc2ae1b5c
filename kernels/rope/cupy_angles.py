"""The rotation with tables where they are given, else with angles it computes, in float32 (float64 for float64)."""

import cupy

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def run(out, x, *, cos=None, sin=None, style, theta, offset, part):
    wide = cupy.float64 if x.dtype == cupy.float64 else cupy.float32
    width = x.shape[-1] // part
    if cos is None:
        power = wide(theta) ** -(cupy.arange(0, width, 2).astype(wide) / wide(max(1, width)))
        angle = cupy.arange(offset, offset + len(x)).astype(wide)[:, None] * power
        cos, sin = cupy.cos(angle), cupy.sin(angle)
    c, s = cos.astype(wide)[:, None], sin.astype(wide)[:, None]
    a, b = _pairs(x[..., :width].astype(wide), style)
    out[..., width:] = x[..., width:]
    y0, y1 = _pairs(out[..., :width], style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
