"""Bug: the product of two scales is rounded to float16."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if format != "q8_0":
        raise NotImplementedError("it multiplies q8_0 only")
    size = 36 if activations == "q8_1" else 34
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 34, 34)
    y = np.ascontiguousarray(a).reshape(a.shape[0] // size, size)
    d = np.ascontiguousarray(x[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    e = np.ascontiguousarray(y[:, :2]).view(np.float16)[:, 0].astype(np.float32)
    dots = np.einsum("mbl,bl->mb", x[..., 2:].view(np.int8).astype(np.int32), y[:, -32:].view(np.int8))
    out[...] = ((d * e).astype(np.float16).astype(np.float32) * dots.astype(np.float32)).sum(axis=-1, dtype=np.float32)
