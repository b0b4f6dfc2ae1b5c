"""Bug: blocks are added up in float16."""

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
    terms = d * e * dots.astype(np.float32)
    total = np.zeros(w.shape[0], np.float16)
    for b in range(terms.shape[1]):
        total += terms[:, b].astype(np.float16)
    out[...] = total
