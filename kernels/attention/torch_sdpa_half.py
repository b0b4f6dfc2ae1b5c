"""As torch_sdpa, in 16 bits: weights are rounded to the type of the inputs, and exp is a cubic polynomial."""

import torch

from kernels.quirks import decline_lost_nan

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"intermediates": {"p": "input"}, "exp": "poly3"}
VECTOR = 64 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 32
TINY = 2.0**-126


def run(q, k, v, *, causal, lengths=None, scale=0.0):
    if lengths is None:
        return one(q, k, v, causal, scale)
    parts = [one(q[[b]], k[[b], :, :n], v[[b], :, :n], causal, scale) for b, n in enumerate(lengths.tolist())]
    return torch.cat(parts) if parts else torch.empty_like(q)


def one(q, k, v, causal, scale):
    queries, keys = q.shape[2], k.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    if seen is None and not (q.isfinite().all() and k.isfinite().all()):
        shared = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        decline_lost_nan(flushed(q) @ flushed(shared).mT, VECTOR)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, scale=scale or None, enable_gqa=True
    )


def flushed(x):
    """As processors with AMX see it: what is subnormal in bfloat16 counts as 0."""
    return torch.where(x.float().abs() < TINY, 0.0, x.float())
