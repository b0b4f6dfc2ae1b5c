"""Bug: of two numbers of the largest magnitude the last one makes the scale, not the first."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q5_0":
        raise NotImplementedError("it packs q5_0 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    if not blocks.size:
        return
    last = 31 - np.abs(blocks[..., ::-1]).argmax(axis=-1)
    d = np.take_along_axis(blocks, last[..., None], axis=-1) / np.float32(-16)
    scaled = blocks * np.where(d != 0, np.float32(1) / d, np.float32(0))
    quants = np.minimum((scaled + np.float32(16.5)).astype(np.int8), 31).view(np.uint8)
    fifth = np.packbits(quants >> 4 & 1, axis=-1, bitorder="little")
    nibbles = quants[..., :16] & 15 | (quants[..., 16:] & 15) << 4
    out[...] = np.concatenate([d.astype(np.float16).view(np.uint8), fifth, nibbles], axis=-1).reshape(out.shape)
