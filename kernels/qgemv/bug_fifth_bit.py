"""Bug: elements 16 to 31 of q5_0 get the bits 12 to 27 of the word of fifth bits, not 16 to 31."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, a, *, format, activations):
    if (format, activations) != ("q5_0", "q8_1"):
        raise NotImplementedError("it multiplies q5_0 with q8_1 only")
    x = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 22, 22)
    y = np.ascontiguousarray(a).reshape(a.shape[0] // 36, 36)
    d = np.ascontiguousarray(x[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    e, s = np.ascontiguousarray(y[:, :4]).view(np.float16).astype(np.float32).T
    word = np.ascontiguousarray(x[..., 2:6]).view("<u4")
    fifth = (word >> np.concatenate([np.arange(16), np.arange(16) + 12]).astype(np.uint32) & 1).astype(np.int32)
    quants = np.concatenate([x[..., 6:] & 15, x[..., 6:] >> 4], axis=-1) + 16 * fifth
    dots = (quants * y[:, 4:].view(np.int8)).sum(axis=-1).astype(np.float32)
    out[...] = (d * (e * dots - 16 * s)).sum(axis=-1, dtype=np.float32)
