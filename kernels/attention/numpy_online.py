"""Attention like numpy_flash, but one key after the other."""

import numpy as np

BACKEND = "numpy"
BLOCK = 1


@np.errstate(all="ignore")
def run(q, k, v, *, causal, lengths=None, scale=0.0):
    wide = np.float64 if q.dtype == np.float64 else np.float32
    out = np.empty(q.shape, q.dtype)
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        length = k.shape[2] if lengths is None else lengths[b]
        queries = q[b, h].astype(wide)
        keys, values = (x[b, h // group, :length].astype(wide) for x in (k, v))
        top = np.full((len(queries), 1), -np.inf, wide)
        total, acc = np.zeros_like(top), np.zeros_like(queries)
        for begin in range(0, length, BLOCK):
            s = queries @ keys[begin : begin + BLOCK].T * wide(scale or q.shape[3] ** -0.5)
            if causal:
                s[np.triu_indices(len(s), length - len(s) + 1 - begin, s.shape[1])] = -np.inf
            new = np.maximum(top, s.max(axis=1, keepdims=True))
            zero = np.where(new == -np.inf, wide(0), new)
            e, shrink = np.exp(s - zero), np.exp(top - zero)
            total = total * shrink + e.sum(axis=1, keepdims=True)
            acc = acc * shrink + e @ values[begin : begin + BLOCK]
            top = new
        out[b, h] = acc / np.where(total == 0, wide(1), total)
    return out
