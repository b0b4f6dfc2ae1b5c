"""Bug: scales are converted to bfloat16, which has 8 bits for the 11 of float16."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format):
    if format not in {"q8_0", "q8_1"}:
        raise NotImplementedError("it unpacks q8_0 and q8_1 only")
    size = 34 if format == "q8_0" else 36
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // size, size)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(ml_dtypes.bfloat16).astype(np.float32)
    out[...] = (d * blocks[..., -32:].view(np.int8).astype(np.float32)).reshape(out.shape)
