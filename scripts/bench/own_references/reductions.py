"""Reductions, scans and pools."""

import torch
import torch.nn.functional as F


def row_total(x: "float32[rows, cols]"):
    return x.sum(dim=1)


def row_total_right(x):
    return x.flip(1).sum(dim=1)


def row_total_right_pairs(x):
    even, odd = x[:, ::2], x[:, 1::2]
    return even.sum(1) + odd.sum(1)


def row_total_wrong_tail(x):
    return x[:, : x.shape[1] // 4 * 4].sum(dim=1)


def row_mean(x: "float32[rows, cols]"):
    return x.mean(dim=1)


def row_mean_right(x):
    return (x / x.shape[1]).sum(dim=1)


def row_mean_wrong_half(x):
    return x.to(torch.float16).mean(dim=1).float()


def variance(x: "float32[rows, cols] -4..4"):
    return x.var(dim=1, unbiased=False)


def variance_right(x):
    off = x - x.mean(1, keepdim=True)
    return (off * off).mean(1)


def variance_wrong_unbiased(x):
    return x.var(dim=1)


def frobenius(x: "float32[rows, cols]"):
    return torch.linalg.norm(x, dim=1)


def frobenius_right(x):
    return (x * x).sum(1).sqrt()


def frobenius_wrong_abs(x):
    return x.abs().sum(1)


def running(x: "float32[rows, cols]"):
    return torch.cumsum(x, dim=1)


def running_right(x):
    y = x.clone()
    step = 1
    while step < x.shape[1]:
        y = torch.cat([y[:, :step], y[:, step:] + y[:, :-step]], dim=1)
        step *= 2
    return y


def running_wrong_blocks(x):
    return torch.cat([torch.cumsum(part, dim=1) for part in x.split(32, dim=1)], dim=1)


def products(x: "float32[rows, cols] 0.5..2"):
    return torch.prod(x, dim=1)


def products_right(x):
    return torch.cumprod(x.flip(1), dim=1)[:, -1].contiguous()


def products_wrong_last(x):
    return torch.prod(x[:, :-1], dim=1) if x.shape[1] > 1 else x[:, 0]


def largest(x: "float32[rows, cols]"):
    return x.max(dim=1).values


def largest_right(x):
    return x.amax(dim=1)


def largest_wrong_zero(x):
    return torch.clamp(x.amax(dim=1), min=0.0)


def ordered(x: "float32[rows, cols]"):
    return torch.sort(x, dim=1).values


def ordered_right(x):
    return x.gather(1, torch.argsort(x, dim=1))


def ordered_wrong_descending(x):
    return torch.sort(x, dim=1, descending=True).values


def best(x: "float32[rows, cols*4]"):
    return torch.topk(x, 3, dim=1).values


def best_right(x):
    return torch.sort(x, dim=1, descending=True).values[:, :3].contiguous()


def best_wrong_order(x):
    return torch.topk(x, 3, dim=1).values.flip(1)


def average_pool(x: "float32[n, c, l*2]"):
    return F.avg_pool1d(x, 2)


def average_pool_right(x):
    return 0.5 * x[:, :, ::2] + 0.5 * x[:, :, 1::2]


def average_pool_wrong_stride(x):
    return F.avg_pool1d(x.roll(1, dims=2), 2)


def max_pool(x: "float32[n, c, h*2, w*2]"):
    return F.max_pool2d(x, 2)


def max_pool_right(x):
    return torch.maximum(
        torch.maximum(x[..., ::2, ::2], x[..., 1::2, ::2]), torch.maximum(x[..., ::2, 1::2], x[..., 1::2, 1::2])
    )


def max_pool_wrong_corner(x):
    return torch.maximum(torch.maximum(x[..., ::2, ::2], x[..., 1::2, ::2]), x[..., ::2, 1::2])
