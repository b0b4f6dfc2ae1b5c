"""Bug: the sum of the activations passes through bfloat16, which has 8 bits for the 11 of float16."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if (format, activations) != ("q4_0", "q8_1"):
        raise NotImplementedError("it multiplies q4_0 with q8_1 only")
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 18, 18)
    y = np.ascontiguousarray(a).reshape(a.shape[0] // 36, 36)
    d = np.ascontiguousarray(x[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    e, s = np.ascontiguousarray(y[:, :4]).view(np.float16).astype(np.float32).T
    quants = np.concatenate([x[..., 2:] & 15, x[..., 2:] >> 4], axis=-1).astype(np.int32)
    dots = (quants * y[:, 4:].view(np.int8)).sum(axis=-1).astype(np.float32)
    s = s.astype(ml_dtypes.bfloat16).astype(np.float32)
    out[...] = (d * (e * dots - 8 * s)).sum(axis=-1, dtype=np.float32)
