"""Bug: 32 keys at a time with a running maximum, which makes NaN of a first tile whose keys all have no weight."""

import numpy as np

BACKEND = "numpy"
PLANTED = "nonfinite"
BLOCK = 32


@np.errstate(all="ignore")
def run(q, k, v, *, causal):
    wide = np.float64 if q.dtype == np.float64 else np.float32
    out, group = np.empty(q.shape, q.dtype), q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        keys, values = (x[b, h // group].astype(wide) for x in (k, v))
        s = q[b, h].astype(wide) @ keys.T * wide(q.shape[3] ** -0.5)
        if causal:
            s[np.triu_indices(len(s), len(keys) - len(s) + 1, len(keys))] = -np.inf
        top = np.full((len(s), 1), -np.inf, wide)
        total, acc = np.zeros_like(top), np.zeros((len(s), q.shape[3]), wide)
        for begin in range(0, len(keys), BLOCK):
            part = s[:, begin : begin + BLOCK]
            new = np.maximum(top, part.max(axis=1, keepdims=True))
            zero = np.where(new == -np.inf, wide(0), new) if causal or len(keys) <= BLOCK else new
            e, shrink = np.exp(part - zero), np.exp(top - zero)
            total = total * shrink + e.sum(axis=1, keepdims=True)
            acc = acc * shrink + e @ values[begin : begin + BLOCK]
            top = new
        out[b, h] = acc / np.where(total == 0, wide(1), total)
    return out
