"""Normalizations and softmaxes, along rows."""

import torch
import torch.nn.functional as F


def softmax(x: "float32[rows, cols]"):
    return torch.softmax(x, dim=-1)


def softmax_right(x):
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def softmax_right_online(x):
    m = torch.full((x.shape[0],), -float("inf"))
    s = torch.zeros(x.shape[0])
    for block in x.split(7, dim=1):
        new = torch.maximum(m, block.amax(dim=1))
        scale = torch.where(m == new, 1.0, torch.exp(m - new))
        safe = torch.where(new == -float("inf"), 0.0, new)
        s = s * scale + torch.exp(block - safe[:, None]).sum(dim=1)
        m = new
    return torch.exp(x - m[:, None]) / s[:, None]


def softmax_wrong_no_max(x):
    e = torch.exp(x)
    return e / e.sum(dim=-1, keepdim=True)


def log_softmax(x: "float32[rows, cols]"):
    return torch.log_softmax(x, dim=-1)


def log_softmax_right(x):
    m = x.max(dim=-1, keepdim=True).values
    return (x - m) - torch.log(torch.exp(x - m).sum(dim=-1, keepdim=True))


def log_softmax_wrong_log(x):
    return torch.log(torch.softmax(x, dim=-1))


def logsumexp(x: "float32[rows, cols]"):
    return torch.logsumexp(x, dim=-1)


def logsumexp_right(x):
    m = x.max(dim=-1, keepdim=True).values
    return torch.log(torch.exp(x - m).sum(dim=-1)) + m[:, 0]


def logsumexp_right_library(x):
    return torch.logsumexp(x, dim=-1)


def logsumexp_wrong_tail(x):
    return torch.logsumexp(x[:, : max(1, x.shape[1] // 8 * 8)], dim=-1)


def layernorm(x: "float32[rows, cols]", w: "float32[cols]", b: "float32[cols]"):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layernorm_right(x, w, b):
    mean = x.mean(dim=-1, keepdim=True)
    var = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + b


def layernorm_right_library(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layernorm_wrong_eps(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b, eps=1e-6)


def rmsnorm(x: "float32[rows, cols]", w: "float32[cols]"):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def rmsnorm_right(x, w):
    return w * (x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-6))


def rmsnorm_wrong_half(x, w):
    total = x.pow(2).half().sum(-1, keepdim=True, dtype=torch.float16).float()
    return x * torch.rsqrt(total / x.shape[-1] + 1e-6) * w


def l2_normalize(x: "float32[rows, cols]"):
    return F.normalize(x, dim=-1)


def l2_normalize_right(x):
    return x / torch.clamp(torch.sqrt((x * x).sum(-1, keepdim=True)), min=1e-12)


def l2_normalize_wrong_no_clamp(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-3)


def groupnorm(x: "float32[n, groups*4, l]"):
    return F.group_norm(x, x.shape[1] // 4)


def groupnorm_right(x):
    n, c, size = x.shape
    y = x.reshape(n, c // 4, 4 * size)
    off = y - y.mean(-1, keepdim=True)
    return (off * torch.rsqrt((off * off).mean(-1, keepdim=True) + 1e-5)).reshape(n, c, size)


def groupnorm_wrong_unbiased(x):
    n, c, size = x.shape
    y = x.reshape(n, c // 4, 4 * size)
    off = y - y.mean(-1, keepdim=True)
    return (off * torch.rsqrt(y.var(-1, keepdim=True) + 1e-5)).reshape(n, c, size)


def cosine(a: "float32[rows, cols]", b: "float32[rows, cols]"):
    return F.cosine_similarity(a, b, dim=-1)


def cosine_right(a, b):
    a = a / torch.clamp(torch.sqrt((a * a).sum(-1, keepdim=True)), min=1e-8)
    b = b / torch.clamp(torch.sqrt((b * b).sum(-1, keepdim=True)), min=1e-8)
    return (a * b).sum(-1)


def cosine_right_library(a, b):
    return F.cosine_similarity(a, b, dim=-1)


def cosine_wrong_norm(a, b):
    return (a * b).sum(-1) / torch.clamp((a * a).sum(-1), min=1e-8)
