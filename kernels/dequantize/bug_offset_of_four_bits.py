"""Bug: 8 stands for zero, as with 4 bits; with 5 bits it is 16."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format not in {"q4_0", "q5_0"}:
        raise NotImplementedError("it unpacks q4_0 and q5_0 only")
    size = 18 if format == "q4_0" else 22
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // size, size)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    quants = np.concatenate([blocks[..., -16:] & 15, blocks[..., -16:] >> 4], axis=-1).astype(np.float32)
    if format == "q5_0":
        quants += 16 * np.unpackbits(blocks[..., 2:6], axis=-1, bitorder="little")
    out[...] = (d * (quants - 8)).reshape(out.shape)
