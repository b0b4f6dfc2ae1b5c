"""Conversions of ml_dtypes."""

import ml_dtypes
import numpy as np

BACKEND = "numpy"
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TYPES |= {name: getattr(ml_dtypes, name) for name in ("float8_e4m3fn", "float8_e5m2")}


@np.errstate(all="ignore")
def convert(x, *, to, saturate=False):
    if saturate:
        raise NotImplementedError("ml_dtypes does not saturate")
    return x.astype(TYPES[to], order="C")
