"""ggml_argmax."""

import numpy as np

from kernel_assay.kernels.backends.support.ggml_library import compute
from kernel_assay.kernels.quirks import decline_forgotten_maximum

BACKEND = "ggml"
DTYPES = ("float32",)


def run(out, x):
    decline_forgotten_maximum(x)
    places = np.empty(out.shape, np.int32)
    compute("argmax", places, x)
    out[...] = places
