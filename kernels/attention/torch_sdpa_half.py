"""Attention like torch_sdpa, in 16 bits: weights are rounded to the inputs' type, and exp is a cubic polynomial.

PyTorch 2.13.0 (CPU): that polynomial makes 0 of NaN, in whole vectors of keys. With q, v = ones(1, 1, 1, 2),
ones(1, 1, 16, 2) and k the same but for k[0, 0, 0, 0] = inf, the result is 0; for 15 keys it is NaN, as Inf - Inf is.
"""

import torch

from kernel_assay.kernels.quirks import decline_lost_nan

BACKEND = "torch"
DTYPES = ("float16", "bfloat16")
NUMERICS = {"intermediates": {"p": "input"}, "exp": "poly3"}
VECTOR = 64 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 32
TINY = 2.0**-126
HIGH = 1e38
OF_CPUS = "the arithmetic it claims is that of torch's attention on the CPU"
LOST_INFINITY = "torch's attention in 16 bits gives 0 for a row with a score of +Inf: its exp makes 0 of NaN"


def run(q, k, v, *, causal, lengths=None, scale=0.0):
    if q.is_cuda:
        raise NotImplementedError(OF_CPUS)
    if lengths is None:
        return one(q, k, v, causal, scale)
    parts = [one(q[[b]], k[[b], :, :n], v[[b], :, :n], causal, scale) for b, n in enumerate(lengths.tolist())]
    return torch.cat(parts) if parts else torch.empty_like(q)


def one(q, k, v, causal, scale):
    queries, keys = q.shape[2], k.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    a, bt = flushed(q), flushed(k).repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT
    if seen is None and not (q.isfinite().all() and k.isfinite().all()):
        decline_lost_nan(a @ bt, VECTOR)
    if keys >= VECTOR // 4 and ((a @ bt == torch.inf).any() or (finite(a) @ finite(bt) > HIGH).any()):
        raise NotImplementedError(LOST_INFINITY)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, scale=scale or None, enable_gqa=True
    )


def finite(x):
    """Magnitudes of what is, which no order of a sum exceeds."""
    return torch.where(x.isfinite(), x.abs(), 0.0)


def flushed(x):
    """Flush as processors with AMX do: what is subnormal in bfloat16 counts as 0."""
    return torch.where(x.float().abs() < TINY, 0.0, x.float())
