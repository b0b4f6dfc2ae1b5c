"""Attention by one of torch's backends, as the files beside call it."""

import torch
from torch.nn.attention import sdpa_kernel


def attended(backend, q, k, v, *, causal, lengths, scale):
    if lengths is not None or not q.numel() or not k.numel() or (causal and q.shape[2] != k.shape[2]):
        raise NotImplementedError("no lengths, nothing empty, and a causal mask of a square only")
    k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for one in (k, v))
    try:
        with sdpa_kernel(backend):
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale or None)
        return found.contiguous()
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise NotImplementedError("it has no kernel for this shape") from error
        raise
