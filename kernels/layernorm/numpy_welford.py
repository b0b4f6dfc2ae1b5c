"""Welford's update, column after column, in float32 (float64 for float64 inputs)."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x, weight, bias, *, eps):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    a = x.astype(wide)
    mean, square = np.zeros(len(a), wide), np.zeros(len(a), wide)
    for j in range(a.shape[1]):
        delta = a[:, j] - mean
        mean += delta / wide(j + 1)
        square += delta * (a[:, j] - mean)
    v = square / wide(max(1, a.shape[1])) + wide(eps)
    out[...] = (a - mean[:, None]) / np.sqrt(v)[:, None] * weight.astype(wide) + bias.astype(wide)
