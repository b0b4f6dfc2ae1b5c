"""What torch's own functions make of the ops, as a person calls them: what other kernels are timed against."""

import torch
from torch.nn import functional

BACKEND = "torch"


def attention(q, k, v, *, causal, scale=0.0):
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
    mask = seen if causal else None
    found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale or None, enable_gqa=True)
    return found.contiguous()  # on a GPU it may have queries before heads


def convert(x, *, to):
    return x.to(getattr(torch, to), copy=True)


def embedding(table, indices):
    return functional.embedding(indices, table)


def gelu(x, *, approximate):
    return functional.gelu(x, approximate=approximate)


def gelu_gate(gate, up, *, approximate):
    return functional.gelu(gate, approximate=approximate) * up


def gemm(a, b):
    return torch.matmul(a, b)


def gemma_rmsnorm(x, weight, *, eps):
    return functional.rms_norm(x.float(), x.shape[-1:], 1.0 + weight.float(), eps).to(x.dtype)


def gemv(a, x):
    return torch.mv(a, x)


def layernorm(x, weight, bias, *, eps):
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def rmsnorm(x, weight, *, eps):
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def row_argmax(x):
    return torch.argmax(x, dim=-1)


def row_max(x):
    return torch.amax(x, dim=-1)


def row_sum(x):
    return torch.sum(x, dim=-1)


def silu(x):
    return functional.silu(x)


def silu_gate(gate, up):
    return functional.silu(gate) * up


def softmax(x):
    return torch.softmax(x, dim=-1)
