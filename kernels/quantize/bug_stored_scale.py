"""Bug: quants are computed with the scale as it is stored, rounded to float16, not with the one it was made of."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, x, *, format):
    if format != "q8_0":
        raise NotImplementedError("it packs q8_0 only")
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    d = (np.abs(blocks).max(axis=-1, keepdims=True, initial=0) / np.float32(127)).astype(np.float16)
    wide = d.astype(np.float32)
    scaled = blocks * np.where(wide != 0, np.float32(1) / wide, np.float32(0))
    quants = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    out[...] = np.concatenate([d.view(np.uint8), quants.view(np.uint8)], axis=-1).reshape(out.shape)
