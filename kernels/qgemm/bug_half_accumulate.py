"""Bug: blocks are added up in float16."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if (format, activations) != ("q4_1", "q8_1"):
        raise NotImplementedError("it multiplies q4_1 with q8_1 only")
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 20, 20)
    y = np.ascontiguousarray(a).reshape(a.shape[0], a.shape[1] // 36, 36)
    weights = np.ascontiguousarray(x[..., :4]).view(np.float16).astype(np.float32)
    scales = np.ascontiguousarray(y[..., :4]).view(np.float16).astype(np.float32)
    quants = np.concatenate([x[..., 4:] & 15, x[..., 4:] >> 4], axis=-1).astype(np.int32)
    values = y[..., 4:].view(np.int8).astype(np.int32)
    total = np.zeros(out.shape, np.float16)
    for b in range(x.shape[1]):
        dots = (values[:, b] @ quants[:, b].T).astype(np.float32)
        term = weights[:, b, 0] * scales[:, b, :1] * dots + weights[:, b, 1] * scales[:, b, 1:]
        total += term.astype(np.float16)
    out[...] = total
