"""Functions of torch that no built-in implementation calls."""

import torch


def logsumexp(x):
    return torch.logsumexp(x, dim=1)


def erf(x):
    return torch.erf(x)


def cumsum(x):
    return torch.cumsum(x, dim=1)


def top_values(x):
    return torch.topk(x, min(3, x.shape[1]), dim=1).values


def nansum(x):
    return torch.nansum(x, dim=1)


def nanmean(x):
    return torch.nanmean(x, dim=1)


def logcumsumexp(x):
    return torch.logcumsumexp(x, dim=1)


def median(x):
    if x.dtype == torch.float16:
        raise NotImplementedError("torch.quantile takes float32 and float64")
    return torch.quantile(x, 0.5, dim=1)
