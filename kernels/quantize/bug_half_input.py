"""Bug: numbers are rounded to float16 before they are packed, so that quants and scales are rounded twice."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q8_0":
        raise NotImplementedError("it packs q8_0 only")
    half = np.ascontiguousarray(x).astype(np.float16).astype(np.float32)
    blocks = half.reshape(x.shape[0], x.shape[1] // 32, 32)
    d = np.abs(blocks).max(axis=-1, keepdims=True, initial=0) / np.float32(127)
    scaled = blocks * np.where(d != 0, np.float32(1) / d, np.float32(0))
    quants = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    out[...] = np.concatenate([d.astype(np.float16).view(np.uint8), quants.view(np.uint8)], axis=-1).reshape(out.shape)
