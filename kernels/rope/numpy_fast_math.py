"""Rope as nvcc's -use_fast_math has it: powers by log2 and exp2, sines of so many turns, in 22 bits; it says so."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"fast_math": True}


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _turned(function, angle):
    """A sine or a cosine as special function units have it: of a fraction of a turn, and with an absolute error."""
    turns = angle * np.float32(0.15915494309189535)
    exact = function((turns - np.rint(turns)).astype(np.float64) * (2 * np.pi))
    return (np.rint(exact * 2.0**22) / 2.0**22).astype(np.float32)


@np.errstate(all="ignore")
def run(out, x, *, style, theta, offset, part):
    width = x.shape[-1] // part
    exponent = np.arange(0, width, 2).astype(np.float32) / np.float32(max(1, width))
    power = np.exp2(-exponent * np.log2(np.float32(theta)))
    angle = np.arange(offset, offset + len(x)).astype(np.float32)[:, None, None] * power
    c, s = _turned(np.cos, angle), _turned(np.sin, angle)
    a, b = _pairs(x[..., :width].astype(np.float32), style)
    out[..., width:] = x[..., width:]
    y0, y1 = _pairs(out[..., :width], style)
    y0[...] = a * c - b * s
    y1[...] = a * s + b * c
