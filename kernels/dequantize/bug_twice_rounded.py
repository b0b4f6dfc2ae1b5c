"""Bug: numbers for a bfloat16 output are rounded to float16 first."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, w, *, format, to="float32"):
    if format not in {"q8_0", "q8_1"}:
        raise NotImplementedError("it unpacks q8_0 and q8_1 only")
    size = 34 if format == "q8_0" else 36
    blocks = np.ascontiguousarray(w).reshape(w.shape[0], w.shape[1] // size, size)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    values = (d * blocks[..., -32:].view(np.int8).astype(np.float32)).reshape(out.shape)
    out[...] = values.astype(np.float16) if to == "bfloat16" else values
