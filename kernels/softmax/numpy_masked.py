"""Online softmax of a row that needs a mask, by blocks of 32 columns; what is masked out is never exponentiated."""

import numpy as np

BACKEND = "numpy"


@np.errstate(all="ignore")
def run(out, x, *, mask, scale=1.0):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    s = x.astype(wide) * wide(scale) + mask.astype(wide)
    top = np.full((len(s), 1), -np.inf, wide)
    total = np.zeros_like(top)
    for begin in range(0, s.shape[1], 32):
        block = s[:, begin : begin + 32]
        new = np.maximum(top, block.max(axis=-1, keepdims=True))
        seen = np.where(top == -np.inf, 0, total * np.exp(top - new))
        total = seen + np.where(block == -np.inf, 0, np.exp(block - new)).sum(axis=-1, keepdims=True)
        top = new
    out[...] = np.where(s == -np.inf, 0, np.exp(s - top)) / total
