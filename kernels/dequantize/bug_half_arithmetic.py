"""Bug: products and sums with the min are rounded to float16 one after the other, and nobody is told."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format != "q4_1":
        raise NotImplementedError("it unpacks q4_1 only")
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 20, 20)
    scales = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    quants = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1).astype(np.float16)
    out[...] = (scales[..., :1] * quants + scales[..., 1:]).reshape(out.shape)
