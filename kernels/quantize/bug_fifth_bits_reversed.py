"""Bug: the fifth bits stand in each byte the wrong way round, the first element's as the highest."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q5_1":
        raise NotImplementedError("it packs q5_1 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    if not blocks.size:
        return
    least = blocks.min(axis=-1, keepdims=True)
    d = (blocks.max(axis=-1, keepdims=True) - least) / np.float32(31)
    scaled = (blocks - least) * np.where(d != 0, np.float32(1) / d, np.float32(0))
    quants = (scaled + np.float32(0.5)).astype(np.uint8)
    scales = np.concatenate([d, least], axis=-1).astype(np.float16).view(np.uint8)
    packed = [scales, np.packbits(quants >> 4, axis=-1), quants[..., :16] & 15 | quants[..., 16:] << 4]
    out[...] = np.concatenate(packed, axis=-1).reshape(out.shape)
