"""Bug: the quant 16, of the largest number's opposite, is not cut to 15 and becomes 0 in its nibble."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q4_0":
        raise NotImplementedError("it packs q4_0 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    if not blocks.size:
        return
    top = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[..., None], axis=-1)
    d = top / np.float32(-8)
    scaled = blocks * np.where(d != 0, np.float32(1) / d, np.float32(0))
    quants = (scaled + np.float32(8.5)).astype(np.uint8) & 15
    packed = [d.astype(np.float16).view(np.uint8), quants[..., :16] | quants[..., 16:] << 4]
    out[...] = np.concatenate(packed, axis=-1).reshape(out.shape)
