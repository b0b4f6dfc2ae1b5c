"""Bug: scores are kept in float16."""

import numpy as np

BACKEND = "numpy"
DTYPES = ("float16",)
PLANTED = "mismatch"


@np.errstate(all="ignore")
def run(q, k, v, *, causal, lengths=None, scale=0.0):
    wide = np.float64 if q.dtype == np.float64 else np.float32
    out = np.empty(q.shape, q.dtype)
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        length = k.shape[2] if lengths is None else lengths[b]
        queries = q[b, h].astype(wide)
        keys, values = (x[b, h // group, :length].astype(wide) for x in (k, v))
        s = ((queries @ keys.T) * wide(scale or q.shape[3] ** -0.5)).astype(np.float16).astype(wide)
        if causal:
            s[np.triu_indices(len(s), len(keys) - len(s) + 1, len(keys))] = -np.inf
        top = s.max(axis=1, keepdims=True, initial=-np.inf)
        e = np.exp(s - np.where(top == -np.inf, wide(0), top))
        total = e.sum(axis=1, keepdims=True)
        out[b, h] = e @ values / np.where(total == 0, wide(1), total)
    return out
