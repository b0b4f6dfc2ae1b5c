"""A graph with a thread for each vertex, as the kernels of race_kernels/graphs.cu take it."""

from typing import Any

import numpy as np


def inputs(draw: Any) -> dict[str, Any]:
    grid, block = draw.integer(1, 4), draw.threads(64)
    n = grid * block
    graph = draw.graph(n)
    args = {
        "out": draw.inout(np.zeros(n, np.int32)),
        "flags": draw.inout(np.zeros(n, np.int32)),
        "x": draw.array(n, "int32", 0, 15),
        "rows": graph.rows,
        "cols": graph.cols,
        "n": n,
    }
    return {"args": args, "grid": grid, "block": block}
