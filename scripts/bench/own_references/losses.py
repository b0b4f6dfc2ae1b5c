"""Losses, and operators that take indices."""

import torch
import torch.nn.functional as F


def cross_entropy(x: "float32[rows, classes]", target: "int64[rows] < classes"):
    return F.cross_entropy(x, target, reduction="none")


def cross_entropy_right(x, target):
    m = x.max(dim=1, keepdim=True).values
    total = torch.log(torch.exp(x - m).sum(dim=1))
    return total - (x - m).gather(1, target[:, None])[:, 0]


def cross_entropy_wrong_class(x, target):
    return F.cross_entropy(x, (target + 1) % x.shape[1], reduction="none")


def mse(a: "float32[rows, cols]", b: "float32[rows, cols]"):
    return F.mse_loss(a, b)


def mse_right(a, b):
    return ((a - b) ** 2).sum() / a.numel()


def mse_wrong_rows(a, b):
    return ((a - b) ** 2).sum() / a.shape[0]


def huber(a: "float32[n]", b: "float32[n]"):
    return F.huber_loss(a, b, reduction="none")


def huber_right(a, b):
    off = (a - b).abs()
    return torch.where(off < 1, 0.5 * off * off, off - 0.5)


def huber_wrong_delta(a, b):
    off = (a - b).abs()
    return torch.where(off < 2, 0.5 * off * off, off - 0.5)


def kl(logp: "float32[rows, cols] -8..0", q: "float32[rows, cols] 0.01..1"):
    return F.kl_div(logp, q, reduction="sum")


def kl_right(logp, q):
    return (q * (torch.log(q) - logp)).sum()


def kl_wrong_sign(logp, q):
    return (q * (logp - torch.log(q))).sum()


def embed(table: "float32[vocab, width]", ids: "int64[n] < vocab"):
    return F.embedding(ids, table)


def embed_right(table, ids):
    return table[ids]


def embed_wrong_clamp(table, ids):
    return table[ids.clamp(max=max(0, table.shape[0] - 2))]


def picked(x: "float32[rows, cols]", ids: "int64[rows, n] < cols"):
    return torch.gather(x, 1, ids)


def picked_right(x, ids):
    return torch.take_along_dim(x, ids, dim=1)


def picked_wrong_row(x, ids):
    return x[0][ids]


def added(x: "float32[n, width]", ids: "int64[n] < slots", start: "float32[slots, width]"):
    return start.index_add(0, ids, x)


def added_right(x, ids, start):
    out = start.clone()
    for i, slot in enumerate(ids.tolist()):
        out[slot] += x[i]
    return out


def added_wrong_last(x, ids, start):
    out = start.clone()
    out[ids] = x + out[ids]
    return out


def rotated(x: "float32[n, half*2]", angle: "float32[n, half] -3..3"):
    a, b = x.chunk(2, dim=1)
    return torch.cat([a * torch.cos(angle) - b * torch.sin(angle), b * torch.cos(angle) + a * torch.sin(angle)], dim=1)


def rotated_right(x, angle):
    a, b = x.chunk(2, dim=1)
    c, s = torch.cos(angle), torch.sin(angle)
    return torch.cat([torch.addcmul(a * c, b, s, value=-1.0), torch.addcmul(b * c, a, s)], dim=1)


def rotated_wrong_sign(x, angle):
    a, b = x.chunk(2, dim=1)
    c, s = torch.cos(angle), torch.sin(angle)
    return torch.cat([a * c + b * s, b * c - a * s], dim=1)


def two_moments(x: "float32[rows, cols] -4..4"):
    return x.mean(dim=1), x.var(dim=1, unbiased=False)


def two_moments_right(out0, out1, x):
    out0[...] = x.mean(dim=1)
    out1[...] = ((x - x.mean(dim=1, keepdim=True)) ** 2).mean(dim=1)


def two_moments_wrong_second(out0, out1, x):
    out0[...] = x.mean(dim=1)
    out1[...] = (x * x).mean(dim=1)
