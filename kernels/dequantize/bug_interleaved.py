"""Bug: low and high nibbles hold elements 0, 2, 4, ... and 1, 3, 5, ..., not the first and the second half."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format != "q4_0":
        raise NotImplementedError("it unpacks q4_0 only")
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 18, 18)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    quants = np.stack([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1).reshape(*blocks.shape[:2], 32)
    out[...] = (d * (quants.astype(np.float32) - 8)).reshape(out.shape)
