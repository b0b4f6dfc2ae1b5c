"""Squares and their mean in float16, the rest in float32: fast, inexact, and it says so."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
NUMERICS = {"accumulate": "float16"}


@np.errstate(all="ignore")
def run(x, weight, *, eps):
    total = np.zeros((x.shape[0], 1), np.float16)
    for column in range(x.shape[1]):
        total += x[:, column : column + 1] * x[:, column : column + 1]
    mean = total.astype(np.float32) / np.float32(max(1, x.shape[1]))
    return (x.astype(np.float32) / np.sqrt(mean + np.float32(eps)) * weight.astype(np.float32)).astype(x.dtype)
