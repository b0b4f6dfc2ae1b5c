"""torch.nn.functional.scaled_dot_product_attention, sequence by sequence where they differ in length."""

import torch

from kernel_assay.kernels.quirks import (
    decline_gapped_attention,
    decline_lost_nan,
    decline_split_infinity,
    decline_unaligned_attention,
)

BACKEND = "torch"
DTYPES = ("float32", "float64")
VECTOR = 64 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 32


def run(q, k, v, *, causal, lengths=None, scale=0.0):
    if lengths is None:
        return one(q, k, v, causal, scale)
    parts = [one(q[[b]], k[[b], :, :n], v[[b], :, :n], causal, scale) for b, n in enumerate(lengths.tolist())]
    return torch.cat(parts) if parts else torch.empty_like(q)


def one(q, k, v, causal, scale):
    decline_unaligned_attention(q, k, v)
    decline_gapped_attention(q, k, v)
    decline_split_infinity(q, k, v)
    queries, keys = q.shape[2], k.shape[2]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    if seen is None and not (q.isfinite().all() and k.isfinite().all()):
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        shared = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        decline_lost_nan(q.to(wide) @ shared.to(wide).mT, VECTOR)
    found = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=seen, scale=scale or None, enable_gqa=True
    )
    return found.contiguous()
