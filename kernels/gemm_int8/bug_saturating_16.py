"""Bug: pairs of products are added in 16 bits with saturation, as by an instruction for unsigned times signed."""

import numpy as np

BACKEND = "numpy"
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(out, a, b, c, *, alpha, beta):
    wide = np.einsum("ik,kj->ikj", a.astype(np.int64), b.astype(np.int64))
    even, odd = wide[:, 0::2], wide[:, 1::2]
    pairs = even.copy()
    pairs[:, : odd.shape[1]] += odd
    acc = np.clip(pairs, -(1 << 15), (1 << 15) - 1).sum(axis=1).astype(np.int32)
    out[...] = np.int32(alpha) * acc + np.int32(beta) * c
