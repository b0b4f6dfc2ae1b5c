"""Bug: elements 16 to 31 get the bits 12 to 27 of the word of fifth bits, not 16 to 31.

GGML writes (qh >> (j + 12)) & 0x10 for bit j + 16.
"""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format != "q5_0":
        raise NotImplementedError("it unpacks q5_0 only")
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 22, 22)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    word = np.ascontiguousarray(blocks[..., 2:6]).view("<u4")
    fifth = word >> np.concatenate([np.arange(16), np.arange(16) + 12]).astype(np.uint32) & 1
    quants = np.concatenate([blocks[..., 6:] & 15, blocks[..., 6:] >> 4], axis=-1) + 16.0 * fifth
    out[...] = (d * (quants - 16).astype(np.float32)).reshape(out.shape)
