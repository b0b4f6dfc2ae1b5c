"""Bug: 7 times the sum is subtracted, not 8 times, which is what q4_0 stores for zero."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if (format, activations) != ("q4_0", "q8_1"):
        raise NotImplementedError("it multiplies q4_0 with q8_1 only")
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 18, 18)
    y = np.ascontiguousarray(a).reshape(a.shape[0], a.shape[1] // 36, 36)
    d = np.ascontiguousarray(x[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    scales = np.ascontiguousarray(y[..., :4]).view(np.float16).astype(np.float32)
    quants = np.concatenate([x[..., 2:] & 15, x[..., 2:] >> 4], axis=-1).astype(np.int32)
    values = y[..., 4:].view(np.int8).astype(np.int32)
    out[...] = 0
    for b in range(x.shape[1]):
        dots = (values[:, b] @ quants[:, b].T).astype(np.float32)
        out += d[:, b] * (scales[:, b, :1] * dots - 7 * scales[:, b, 1:])
