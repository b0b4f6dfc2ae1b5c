"""Arguments as kernels have them: changed in place, optional, lists, masks, offsets; results that are views, or places.

Every kernel is a function, or a class of modules or autograd functions that is made without arguments.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


def mean_and_rest(x: "float32[rows, cols] -4..4"):
    mean = x.mean(dim=1, keepdim=True)
    return mean, x - mean


def mean_and_rest_right(x):
    mean = x.sum(dim=1, keepdim=True) / x.shape[1]
    return mean, x - mean


def mean_and_rest_wrong_swapped_rest(x):
    mean = x.mean(dim=1, keepdim=True)
    return mean, mean - x


def clip_(x: "float32[rows, cols]"):
    return x.clamp_(0.0, 6.0)


def clip__right_returns_none(x):
    x[:] = torch.where(x > 6, torch.full_like(x, 6.0), torch.where(x < 0, torch.zeros_like(x), x))


def clip__right_returns_it(x):
    return F.hardtanh_(x, 0.0, 6.0)


def clip__wrong_other_memory(x):
    return x.clamp(0.0, 6.0)


def clip__wrong_one_end(x):
    return x.clamp_(min=0.0)


def accumulate(out: "float32[n] -4..4 inout", a: "float32[n] -4..4", b: "float32[n] -4..4"):
    out += a * b


def accumulate_right(out, a, b):
    torch.addcmul(out, a, b, out=out)


def accumulate_wrong_overwrites(out, a, b):
    out.copy_(a * b)


def moving_mean(x: "float32[n, c] -4..4", mean: "float32[c] -4..4 inout", *, momentum: "float 0.1..0.9"):
    mean.mul_(1 - momentum).add_(x.mean(dim=0) * momentum)
    return x - mean


def moving_mean_right(x, mean, momentum):
    mean.copy_(mean * (1 - momentum) + momentum * (x.sum(dim=0) / x.shape[0]))
    return x - mean


def moving_mean_wrong_keeps_mean(x, mean, momentum=0.1):
    return x - (mean * (1 - momentum) + momentum * x.mean(dim=0))


def moving_mean_wrong_momentum(x, mean, momentum=0.1):
    mean.mul_(0.9).add_(x.mean(dim=0) * momentum)
    return x - mean


def turned(x: "float32[rows, cols]"):
    return x.t()


def turned_right_view(x):
    return x.transpose(0, 1)


def turned_right_copy(x):
    return x.t().contiguous()


def turned_wrong_shape(x):
    return x.reshape(x.shape[1], x.shape[0])


def affine(x: "float32[rows, cols] -4..4", bias: "float32[cols] -4..4" = None, *, alpha=1.5):
    return alpha * x if bias is None else alpha * x + bias


def affine_right(x, bias=None, *, alpha):
    return x * alpha + (0 if bias is None else bias)


def affine_right_without_alpha(x, bias=None):
    return x * 1.5 + (0 if bias is None else bias)


def affine_right_other_strides(x, bias=None, *, alpha):
    """As a convolution by einsum leaves it: torch's own operators take it like any other."""
    return affine_right(x, bias, alpha=alpha).t().contiguous().t()


def affine_right_negative_bit(x, bias=None, *, alpha):
    return torch._neg_view(-affine_right(x, bias, alpha=alpha))  # noqa: SLF001  who else makes one?


def affine_wrong_bias(x, bias=None, alpha=1.5):
    return alpha * (x if bias is None else x + bias)


def power_mean(x: "float32[rows, cols] 0.5..4", p: "int 1..3"):
    return (x**p).mean(dim=1)


def power_mean_right(x, p):
    y = torch.ones_like(x)
    for _ in range(p):
        y = y * x
    return y.sum(dim=1) / x.shape[1]


def power_mean_wrong_p(x, p):
    return (x ** min(p, 2)).mean(dim=1)


def masked_sum(x: "float32[rows, cols] -4..4", mask: "bool[rows, cols]"):
    return torch.where(mask, x, torch.zeros_like(x)).sum(dim=1)


def masked_sum_right(x, mask):
    return (x * mask).sum(dim=1)


def masked_sum_wrong_not(x, mask):
    return x.masked_fill(mask, 0.0).sum(dim=1)


def joined(xs: "list[float32[rows_i, cols]]"):
    return torch.cat(xs, dim=0)


def joined_right(xs):
    out = xs[0].new_empty(sum(len(x) for x in xs), xs[0].shape[1])
    start = 0
    for x in xs:
        out[start : start + len(x)] = x
        start += len(x)
    return out


def joined_wrong_order(xs):
    return torch.cat(xs[::-1], dim=0)


def picked(x: "float32[rows, cols]", index: "int64[rows, k] < cols"):
    return x.gather(1, index)


def picked_right(x, index):
    return torch.take_along_dim(x, index, 1)


def picked_wrong_clamped(x, index):
    return x.gather(1, index.clamp(max=max(0, x.shape[1] - 2)))


def scattered(x: "float32[rows, cols] -4..4", index: "int64[n] < rows", src: "float32[n, cols] -4..4"):
    return x.scatter_add(0, index[:, None].expand(-1, x.shape[1]), src)


def scattered_right(x, index, src):
    return x.index_add(0, index, src)


def scattered_wrong_last_wins(x, index, src):
    out = x.clone()
    out[index] += src
    return out


def arg_best(x: "float32[rows, cols] -4..4"):
    return x.argmax(dim=1)


def arg_best_right_last(x):
    return x.shape[1] - 1 - x.flip(1).argmax(dim=1)


def arg_best_wrong_head(x):
    return x[:, : max(1, x.shape[1] - 1)].argmax(dim=1)


def top_two(x: "float32[rows, cols] -4..4"):
    values, places = x.topk(min(2, x.shape[1]), dim=1)
    return values, places


def top_two_right_sorted(x):
    values, places = torch.sort(x, dim=1, descending=True, stable=True)
    return values[:, :2].contiguous(), places[:, :2].contiguous()


def top_two_wrong_same_place(x):
    values, places = x.topk(min(2, x.shape[1]), dim=1)
    return values, torch.where(values == values[:, :1], places[:, :1], places)


def pooled(x: "float32[n, 3, length] -4..4", k: "int 1..3", s: "int 1..3"):
    return F.avg_pool1d(x, k, stride=s, padding=0)


def pooled_right(x, k, s):
    return x.unfold(2, k, s).sum(dim=3) / k


def pooled_wrong_edge(x, k, s):
    return F.avg_pool1d(x[..., : max(k, x.shape[2] - 1)], k, stride=s, ceil_mode=True)


def segments(values: "float32[total, width] -4..4", offsets: "int64[b+1] offsets of total"):
    return torch.stack([values[i:j].sum(dim=0) for i, j in pairwise(offsets.tolist())])


def segments_right(values, offsets):
    out = values.new_zeros(len(offsets) - 1, values.shape[1])
    rows = torch.repeat_interleave(torch.arange(len(out)), offsets.diff())
    return out.index_add_(0, rows, values)


def segments_wrong_end(values, offsets):
    return torch.stack([values[i : max(i, j - 1)].sum(dim=0) for i, j in pairwise(offsets.tolist())])


def csr_times_dense(
    crow: "int64[rows+1] offsets of nnz",
    col: "int64[nnz] < inner",
    values: "float32[nnz] -4..4",
    dense: "float32[inner, width] -4..4",
):
    rows = torch.repeat_interleave(torch.arange(len(crow) - 1), crow.diff())
    return torch.zeros(len(crow) - 1, dense.shape[1]).index_add(0, rows, values[:, None] * dense[col])


def csr_times_dense_right(crow, col, values, dense):
    out = [values[i:j] @ dense[col[i:j]] for i, j in pairwise(crow.tolist())]
    return torch.stack(out)


def csr_times_dense_wrong_skips(crow, col, values, dense):
    out = [values[i:j:2] @ dense[col[i:j:2]] for i, j in pairwise(crow.tolist())]
    return torch.stack(out)


def gated(x: "float32[rows, cols] -4..4", w: "float32[cols] -4..4"):
    return torch.relu(x) * w


class gated_right_module(nn.Module):
    def forward(self, x, w):
        return torch.relu(x) * w


class gated_wrong_module(nn.Module):
    def forward(self, x, w):
        return torch.relu(x * w)


class gated_right_autograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.clamp(min=0) * w


class gated_wrong_autograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return F.leaky_relu(x) * w


class gated_right_callable:
    def __call__(self, x, w):
        return torch.relu(x) * w
