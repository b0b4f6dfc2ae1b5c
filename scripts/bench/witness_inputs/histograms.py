"""Indices of bins, an element for each thread, as the kernels of race_kernels/histograms.cu take them."""

from typing import Any

import numpy as np

LEAST = 1
"""Threads that clear all bins."""


def inputs(draw: Any) -> dict[str, Any]:
    grid, block = draw.integer(1, 4), max(LEAST, draw.threads(64))
    n = grid * block
    args = {
        "out": draw.inout(np.zeros(max(n, 16 * (grid + 1)), np.int32)),
        "flags": draw.inout(np.zeros(1, np.int32)),
        "x": draw.indices(max(n, 64), min(block, 16)),
        "rows": np.zeros(1, np.int32),
        "cols": np.zeros(1, np.int32),
        "n": n,
    }
    return {"args": args, "grid": grid, "block": block}
