"""Round to nearest even by integer arithmetic on the bits (bfloat16); by scaling to the target's grid (others)."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x, *, to, saturate=False):
    facts, x = ml_dtypes.finfo(out.dtype), x.astype(np.float32)
    x = np.clip(x, -np.float32(facts.max), np.float32(facts.max)) if saturate else x
    if to == "bfloat16":
        bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        nan = (bits >> np.uint32(16)) | np.uint32(0x40)
        out[...] = np.where(np.isnan(x), nan, rounded).astype(np.uint16).view(out.dtype)
        return
    exponent = np.maximum(np.frexp(x)[1], facts.minexp + 1) - (facts.nmant + 1)
    out[...] = np.ldexp(np.rint(np.ldexp(x.astype(np.float64), -exponent)), exponent)
