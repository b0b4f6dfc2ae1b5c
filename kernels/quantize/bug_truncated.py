"""Bug: quotients are cut, not rounded: the half that the cast needs is missing."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q4_1":
        raise NotImplementedError("it packs q4_1 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    if not blocks.size:
        return
    least = blocks.min(axis=-1, keepdims=True)
    d = (blocks.max(axis=-1, keepdims=True) - least) / np.float32(15)
    quants = ((blocks - least) * np.where(d != 0, np.float32(1) / d, np.float32(0))).astype(np.uint8)
    scales = np.concatenate([d, least], axis=-1).astype(np.float16).view(np.uint8)
    out[...] = np.concatenate([scales, quants[..., :16] | quants[..., 16:] << 4], axis=-1).reshape(out.shape)
