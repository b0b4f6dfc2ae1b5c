"""Bug: the scale is made of the largest magnitude, so that a block whose largest number is positive loses it."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q4_0":
        raise NotImplementedError("it packs q4_0 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    d = np.abs(blocks).max(axis=-1, keepdims=True, initial=0) / np.float32(8)
    scaled = blocks * np.where(d != 0, np.float32(1) / d, np.float32(0))
    quants = np.minimum((scaled + np.float32(8.5)).astype(np.uint8), 15)
    packed = [d.astype(np.float16).view(np.uint8), quants[..., :16] | quants[..., 16:] << 4]
    out[...] = np.concatenate(packed, axis=-1).reshape(out.shape)
