"""Scaled and masked softmax in float32 (float64 for float64 inputs): maximum, exponentials, quotient by their sum."""

import cupy

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(out, x, *, mask=None, scale):
    if not x.size:
        return
    wide = x.astype(cupy.float64 if x.dtype == cupy.float64 else cupy.float32)
    s = wide * wide.dtype.type(scale)
    if mask is not None:
        s = s + mask.astype(wide.dtype)
    e = cupy.exp(s - cupy.max(s, axis=-1, keepdims=True))
    out[...] = e / cupy.sum(e, axis=-1, keepdims=True)
