"""Bug: high nibbles are taken for the first half of a block, low ones for the second."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format != "q4_1":
        raise NotImplementedError("it unpacks q4_1 only")
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 20, 20)
    scales = np.ascontiguousarray(blocks[..., :4]).view(np.float16).astype(np.float32)
    quants = np.concatenate([blocks[..., 4:] >> 4, blocks[..., 4:] & 15], axis=-1).astype(np.float32)
    out[...] = (scales[..., :1] * quants + scales[..., 1:]).reshape(out.shape)
