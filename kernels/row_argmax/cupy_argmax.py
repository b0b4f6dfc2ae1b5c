"""cupy.argmax along rows."""

import cupy

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(x):
    return cupy.argmax(x, axis=-1)
