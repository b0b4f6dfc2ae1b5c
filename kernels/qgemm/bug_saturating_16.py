"""Bug: products of quants are added in pairs of 16 bits with saturation, quants shifted to be unsigned."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if (format, activations) != ("q8_0", "q8_0"):
        raise NotImplementedError("it multiplies q8_0 with q8_0 only")
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 34, 34)
    y = np.ascontiguousarray(a).reshape(a.shape[0], a.shape[1] // 34, 34)
    d, e = (np.ascontiguousarray(raw[..., :2]).view(np.float16)[..., 0].astype(np.float32) for raw in (x, y))
    unsigned = x[..., 2:].view(np.int8).astype(np.int32) + 128
    values = y[..., 2:].view(np.int8).astype(np.int32)
    out[...] = 0
    for b in range(x.shape[1]):
        products = values[:, None, b] * unsigned[:, b]
        pairs = np.clip(products[..., 0::2] + products[..., 1::2], -(1 << 15), (1 << 15) - 1)
        dots = pairs.sum(axis=-1) - 128 * values[:, b].sum(axis=-1)[:, None]
        out += d[:, b] * e[:, b, None] * dots.astype(np.float32)
