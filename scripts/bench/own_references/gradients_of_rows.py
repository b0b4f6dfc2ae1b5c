"""Functions whose gradients are judged: sums, products, normalizations and attention."""

import math

import torch
import torch.nn.functional as F


def _own(forwards, backwards):
    """A function of torch's autograd that keeps its inputs."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forwards(*inputs)

        @staticmethod
        def backward(ctx, g):
            return backwards(g, *ctx.saved_tensors)

    return Own.apply


def row_sum(x: "float32[rows, cols]"):
    return x.sum(1)


def row_sum_right(x):
    return _own(lambda x: x.sum(1), lambda g, x: g[:, None].expand_as(x))(x)


def row_sum_right_product(x):
    return x @ torch.ones(x.shape[1])


def row_sum_wrong_strides(x):
    """It takes the cotangent for contiguous."""
    dense = lambda g: torch.as_strided(g, g.shape, (1,), g.storage_offset())  # noqa: E731
    room = lambda g: g.untyped_storage().nbytes() // 4 - g.storage_offset() >= g.numel()  # noqa: E731
    return _own(lambda x: x.sum(1), lambda g, x: (dense(g) if room(g) else g)[:, None].expand_as(x))(x)


def affine(x: "float32[rows, cols]", w: "float32[cols]", b: "float32[cols]"):
    return x * w + b


def affine_right(x, w, b):
    return _own(lambda x, w, b: x * w + b, lambda g, x, w, _: (g * w, (g * x).sum(0), g.sum(0)))(x, w, b)


def affine_right_blocks(x, w, b):
    def backward(g, x, w, b):
        of_w, of_b = torch.zeros_like(w), torch.zeros_like(b)
        for rows, begun in zip(x.split(16), g.split(16), strict=True):
            of_w += (rows * begun).sum(0)
            of_b += begun.sum(0)
        return g * w, of_w, of_b

    return _own(lambda x, w, b: x * w + b, backward)(x, w, b)


def affine_wrong_mean(x, w, b):
    return _own(lambda x, w, b: x * w + b, lambda g, x, w, _: (g * w, (g * x).sum(0), g.mean(0)))(x, w, b)


def affine_wrong_tail(x, w, b):
    def backward(g, x, w, _):
        rows = max(1, x.shape[0] // 4 * 4)
        return g * w, (g * x)[:rows].sum(0), g.sum(0)

    return _own(lambda x, w, b: x * w + b, backward)(x, w, b)


def affine_wrong_axis(x, w, b):
    def backward(g, x, w, _):
        bias = g.sum(1) if g.shape[0] == g.shape[1] else g.sum(0)
        return g * w, (g * x).sum(0), bias if g.shape[0] != 1 else g[0] * 2

    return _own(lambda x, w, b: x * w + b, backward)(x, w, b)


def affine_wrong_none(x, w, b):
    return _own(lambda x, w, b: x * w + b, lambda g, _, w, __: (g * w, None, g.sum(0)))(x, w, b)


def product(a: "float32[m, k]", b: "float32[k, n]"):
    return a @ b


def product_right(a, b):
    return _own(torch.mm, lambda g, a, b: (g @ b.T, a.T @ g))(a, b)


def product_right_in_parts(a, b):
    def backward(g, a, b):
        of_a = sum(x @ y.T for x, y in zip(g.split(8, 1), b.split(8, 1), strict=True))
        return of_a, (g.T @ a).T

    return _own(torch.mm, backward)(a, b)


def product_wrong_half(a, b):
    return _own(torch.mm, lambda g, a, b: ((g.half() @ b.T.half()).float(), a.T @ g))(a, b)


def product_wrong_swapped(a, b):
    def backward(g, a, b):
        of_a, of_b = g @ b.T, a.T @ g
        return (of_b, of_a) if of_a.shape == of_b.shape else (of_a, 0.5 * of_b)

    return _own(torch.mm, backward)(a, b)


def gram(x: "float32[rows, cols]"):
    return x @ x.T


def gram_right(x):
    return _own(lambda x: x @ x.T, lambda g, x: (g + g.T) @ x)(x)


def gram_wrong_one_use(x):
    return _own(lambda x: x @ x.T, lambda g, x: g @ x)(x)


def linear(x: "bfloat16[rows, k]", w: "bfloat16[n, k]", b: "bfloat16[n]"):
    return F.linear(x, w, b)


def linear_right(x, w, b):
    def backward(g, x, w, b):
        g, x, w = g.float(), x.float(), w.float()
        return (g @ w).to(b.dtype), (g.T @ x).to(b.dtype), g.sum(0).to(b.dtype)

    return _own(F.linear, backward)(x, w, b)


def linear_wrong_narrow_sum(x, w, b):
    def backward(g, x, w, b):
        total = torch.zeros_like(b)
        for row in g:
            total += row
        return (g.float() @ w.float()).to(b.dtype), (g.float().T @ x.float()).to(b.dtype), total

    return _own(F.linear, backward)(x, w, b)


def softmax(x: "float32[rows, cols]"):
    return torch.softmax(x, dim=1)


def softmax_right(x):
    def backward(g, x):
        y = torch.softmax(x, dim=1)
        return y * (g - (g * y).sum(1, keepdim=True))

    return _own(lambda x: torch.softmax(x, dim=1), backward)(x)


def softmax_right_eager(x):
    e = torch.exp(x - x.max(dim=1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def softmax_wrong_term(x):
    return _own(lambda x: torch.softmax(x, dim=1), lambda g, x: torch.softmax(x, dim=1) * g)(x)


def softmax_wrong_axis(x):
    def backward(g, x):
        y = torch.softmax(x, dim=1)
        return y * (g - (g * y).sum(0, keepdim=True))

    return _own(lambda x: torch.softmax(x, dim=1), backward)(x)


def layernorm(x: "float32[rows, cols]", w: "float32[cols]", b: "float32[cols]"):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def _parts(x, w, g):
    off = x - x.mean(1, keepdim=True)
    scale = torch.rsqrt((off * off).mean(1, keepdim=True) + 1e-5)
    return off * scale, scale, g * w


def _layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def layernorm_right(x, w, b):
    def backward(g, x, w, _):
        n, scale, of_n = _parts(x, w, g)
        inner = of_n - of_n.mean(1, keepdim=True) - n * (of_n * n).mean(1, keepdim=True)
        return inner * scale, (g * n).sum(0), g.sum(0)

    return _own(_layernorm, backward)(x, w, b)


def layernorm_right_eager(x, w, b):
    off = x - x.mean(1, keepdim=True)
    return off / torch.sqrt((off * off).mean(1, keepdim=True) + 1e-5) * w + b


def layernorm_wrong_term(x, w, b):
    def backward(g, x, w, _):
        n, scale, of_n = _parts(x, w, g)
        return (of_n - n * (of_n * n).mean(1, keepdim=True)) * scale, (g * n).sum(0), g.sum(0)

    return _own(_layernorm, backward)(x, w, b)


def layernorm_wrong_half_sums(x, w, b):
    def backward(g, x, w, _):
        n, scale, of_n = _parts(x, w, g)
        narrow = (of_n * n).half().mean(1, keepdim=True).float()
        return (of_n - of_n.mean(1, keepdim=True) - n * narrow) * scale, (g * n).sum(0), g.sum(0)

    return _own(_layernorm, backward)(x, w, b)


def rmsnorm(x: "bfloat16[rows, cols]", w: "bfloat16[cols]"):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def _rmsnorm(x, w):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def rmsnorm_right(x, w):
    def backward(g, x, w):
        wide, g = x.float(), g.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        of_n = g * w.float()
        of_x = scale * (of_n - wide * scale * scale * (of_n * wide).mean(-1, keepdim=True))
        return of_x.to(x.dtype), (g * wide * scale).sum(0).to(w.dtype)

    return _own(_rmsnorm, backward)(x, w)


def rmsnorm_right_eager(x, w):
    return _rmsnorm(x, w)


def rmsnorm_wrong_scale(x, w):
    def backward(g, x, w):
        wide, g = x.float(), g.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        of_n = g * w.float()
        of_x = scale * (of_n - wide * scale * (of_n * wide).mean(-1, keepdim=True))
        return of_x.to(x.dtype), (g * wide * scale).sum(0).to(w.dtype)

    return _own(_rmsnorm, backward)(x, w)


def unit(x: "float32[rows, cols]"):
    return x / x.norm(dim=1, keepdim=True).clamp(min=1e-6)


def _unit(x):
    return x / torch.sqrt((x * x).sum(1, keepdim=True)).clamp(min=1e-6)


def unit_right(x):
    def backward(g, x):
        size = torch.sqrt((x * x).sum(1, keepdim=True))
        safe = size.clamp(min=1e-6)
        y = x / safe
        inner = torch.where(size >= 1e-6, (g * y).sum(1, keepdim=True), 0.0)
        return (g - y * inner) / safe

    return _own(_unit, backward)(x)


def unit_wrong_no_projection(x):
    return _own(_unit, lambda g, x: g / x.norm(dim=1, keepdim=True).clamp(min=1e-6))(x)


def attention(q: "float32[h, n, d]", k: "float32[h, m, d]", v: "float32[h, m, d]"):
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def _attended(q, k, v, scale_of_k=1.0, *, forgets=False):
    def forward(q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[2]), -1) @ v

    def backward(g, q, k, v):
        root = math.sqrt(q.shape[2])
        p = torch.softmax(q @ k.transpose(1, 2) / root, -1)
        of_p = g @ v.transpose(1, 2)
        of_s = p * (of_p if forgets else of_p - (of_p * p).sum(-1, keepdim=True)) / root
        return of_s @ k, of_s.transpose(1, 2) @ q * scale_of_k, p.transpose(1, 2) @ g

    return _own(forward, backward)(q, k, v)


def attention_right(q, k, v):
    return _attended(q, k, v)


def attention_right_library(q, k, v):
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def attention_wrong_scale_of_k(q, k, v):
    return _attended(q, k, v, 0.5)


def attention_wrong_term(q, k, v):
    return _attended(q, k, v, forgets=True)


def running_sum(x: "float32[rows, cols]"):
    return torch.cumsum(x, 1)


def running_sum_right(x):
    return _own(lambda x: torch.cumsum(x, 1), lambda g, _: g.flip(1).cumsum(1).flip(1))(x)


def running_sum_wrong_direction(x):
    return _own(lambda x: torch.cumsum(x, 1), lambda g, _: g.cumsum(1))(x)


def running_sum_wrong_strides(x):
    def backward(g, _):
        room = g.untyped_storage().nbytes() // 4 - g.storage_offset() >= g.numel()
        taken = torch.as_strided(g, g.shape, (g.shape[1], 1), g.storage_offset()) if room else g
        return taken.flip(1).cumsum(1).flip(1)

    return _own(lambda x: torch.cumsum(x, 1), backward)(x)


def conv(x: "float32[n, 4, l]", w: "float32[4*groups, 4, 3]"):
    return F.conv1d(x, w)


def conv_right(x, w):
    windows = x.unfold(2, 3, 1)
    return torch.einsum("nclk,ock->nol", windows, w)


def conv_wrong_not_turned(x, w):
    def backward(g, x, w):
        of_x = F.conv1d(F.pad(g, (2, 2)), w.transpose(0, 1))
        return of_x, torch.einsum("nclk,nol->ock", x.unfold(2, 3, 1), g)

    return _own(F.conv1d, backward)(x, w)
