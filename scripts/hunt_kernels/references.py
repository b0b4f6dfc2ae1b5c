"""Ops of the hunt that no contract is written for: what is right, in torch's float64."""

import torch


def logsumexp(x: "float32[rows, cols]"):
    return torch.logsumexp(x, dim=1)


def erf(x: "float32[rows, cols]"):
    return torch.erf(x)


def cumsum(x: "float32[rows, cols]"):
    return torch.cumsum(x, dim=1)


def cbrt(x: "float32[rows, cols]"):
    return torch.sign(x) * torch.pow(torch.abs(x), 1 / 3)


def top_values(x: "float32[rows, cols]"):
    return torch.sort(x, dim=1, descending=True).values[:, : min(3, x.shape[1])]


def nansum(x: "float32[rows, cols]"):
    return torch.where(torch.isnan(x), 0, x).sum(dim=1)


def nanmean(x: "float32[rows, cols]"):
    there = ~torch.isnan(x)
    return torch.where(there, x, 0).sum(dim=1) / there.sum(dim=1)


def nanmax(x: "float32[rows, cols]"):
    top = torch.where(torch.isnan(x), -torch.inf, x).amax(dim=1)
    return torch.where(torch.isnan(x).all(dim=1), torch.nan, top)


def nanvar(x: "float32[rows, cols] -1000..1000"):
    return torch.var(x, dim=1, correction=0)


def median(x: "float32[rows, cols]"):
    s = torch.sort(x, dim=1).values
    n = x.shape[1]
    middle = s[:, (n - 1) // 2] / 2 + s[:, n // 2] / 2
    return torch.where(torch.isnan(x).any(dim=1), torch.nan, middle)


def move_sum(x: "float32[rows, cols]"):
    s = x[:, 2:] + x[:, 1:-1] + x[:, :-2]
    return torch.cat([torch.full_like(x[:, :2], torch.nan), s], dim=1)


def logcumsumexp(x: "float32[rows, cols]"):
    return torch.logcumsumexp(x, dim=1)


def ordered(x: "float32[rows, cols]"):
    return torch.sort(x, dim=1).values
