"""Bug: numbers for a bfloat16 output are rounded to float16 first."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format, to="float32"):
    if format != "q8_0":
        raise NotImplementedError("it unpacks q8_0 only")
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // 34, 34)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    values = (d * blocks[..., 2:].view(np.int8).astype(np.float32)).reshape(out.shape)
    out[...] = values.astype(np.float16) if to == "bfloat16" else values
