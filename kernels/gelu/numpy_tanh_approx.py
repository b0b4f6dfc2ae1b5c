"""tanh with the 11 bits of the PTX instruction tanh.approx, in the tanh form; it says so and declines the erf form."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float32", "float16", "bfloat16")
NUMERICS = {"tanh": "approx"}


@np.errstate(all="ignore")
def run(x, *, approximate):
    if approximate != "tanh":
        raise NotImplementedError("has the tanh form only")
    wide = x.astype(np.float32)
    z = np.float32(0.7978845608028654) * (wide + np.float32(0.044715) * wide * wide * wide)
    near = np.tanh(z).astype(np.float16).astype(np.float32)
    return (np.float32(0.5) * wide * (np.float32(1) + near)).astype(x.dtype, order="C")
