"""Attention in one piece: all scores, a softmax, a product; by cuBLAS in float32 (float64 for float64 inputs)."""

import cupy

BACKEND = "cupy"
DTYPES = ("float32", "float16", "float64")


def run(out, q, k, v, *, causal, lengths=None, scale=0.0):
    batch, heads, queries, head = q.shape
    kv_heads, keys = k.shape[1:3]
    if not out.size:
        return
    if not keys:
        out[...] = 0
        return
    wide = cupy.float64 if q.dtype == cupy.float64 else cupy.float32
    length = keys if lengths is None else lengths.reshape(batch, 1, 1, 1)
    rows = q.astype(wide).reshape(batch, kv_heads, heads // kv_heads * queries, head)
    s = cupy.matmul(rows, k.astype(wide).transpose(0, 1, 3, 2)) * wide(scale or head**-0.5)
    i, j = cupy.arange(rows.shape[2])[:, None] % queries, cupy.arange(keys)
    last = length - queries + i if causal else length - 1
    s = cupy.where(j <= last, s, wide(-float("inf")))
    top = cupy.max(s, axis=-1, keepdims=True)
    e = cupy.exp(s - cupy.where(top == -float("inf"), wide(0), top))
    total = cupy.sum(e, axis=-1, keepdims=True)
    values = cupy.where(j[:, None] < length, v.astype(wide), wide(0))  # what lies behind may be NaN, and 0 NaN is
    out[...] = (cupy.matmul(e, values) / cupy.where(total == 0, wide(1), total)).reshape(out.shape)
