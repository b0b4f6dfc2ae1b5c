"""Attention like torch_math, but with weights rounded to the type of the inputs before the second product."""

import torch

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"intermediates": {"p": "input"}}


def run(q, k, v, *, causal, lengths=None, scale=0.0):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    out, group = torch.empty(q.shape, dtype=q.dtype), q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        length = k.shape[2] if lengths is None else int(lengths[b])
        keys, values = (x[b, :, :length].to(wide).repeat_interleave(group, dim=0) for x in (k, v))
        s = torch.matmul(q[b].to(wide), keys.mT) * (scale or q.shape[3] ** -0.5)
        if causal:
            hidden = torch.ones(s.shape[1:], dtype=torch.bool).triu(length - s.shape[1] + 1)
            s = s.masked_fill(hidden, -torch.inf)
        out[b] = torch.matmul(torch.softmax(s, dim=-1).to(q.dtype).to(wide), values)
    return out
