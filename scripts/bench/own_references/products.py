"""Products of matrices, convolutions, attention."""

import math

import torch
import torch.nn.functional as F


def matmul(a: "float32[m, k]", b: "float32[k, n]"):
    return a @ b


def matmul_right(a, b):
    return (b.T @ a.T).T.contiguous()


def matmul_right_split(a, b):
    half = a.shape[1] // 2
    return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]


def matmul_wrong_half(a, b):
    return (a.half() @ b.half()).float()


def linear(x: "float32[rows, k]", w: "float32[n, k]", b: "float32[n]"):
    return F.linear(x, w, b)


def linear_right(x, w, b):
    return (x[:, None, :] * w[None]).sum(-1) + b


def linear_wrong_bias(x, w, b):
    return F.linear(x, w) + b[0]


def mlp(x: "float32[rows, k]", w: "float32[n, k]", v: "float32[o, n]"):
    return F.linear(F.relu(F.linear(x, w)), v)


def mlp_right(x, w, v):
    return torch.clamp(x @ w.T, min=0) @ v.T


def mlp_wrong_no_relu(x, w, v):
    return x @ w.T @ v.T


def chain(a: "float32[m, k]", b: "float32[k, n]", c: "float32[n, p]"):
    return a @ b @ c


def chain_right(a, b, c):
    return (a @ b) @ c


def chain_wrong_bfloat(a, b, c):
    return (a @ b).bfloat16().float() @ c


def batched(a: "float32[batch, m, k]", b: "float32[batch, k, n]"):
    return torch.einsum("bmk,bkn->bmn", a, b)


def batched_right(a, b):
    return torch.bmm(a, b)


def batched_wrong_first(a, b):
    return torch.einsum("bmk,kn->bmn", a, b[0])


def conv1d(x: "float32[n, c, l*4]", w: "float32[o, c, 3]", b: "float32[o]"):
    return F.conv1d(x, w, b, padding=1)


def conv1d_right(x, w, b):
    padded = F.pad(x, (1, 1))
    size = x.shape[2]
    parts = [torch.einsum("ncl,oc->nol", padded[:, :, i : i + size], w[:, :, i]) for i in range(3)]
    return (parts[0] + parts[1] + parts[2] + b[:, None]).contiguous()


def conv1d_wrong_flip(x, w, b):
    return F.conv1d(x, w.flip(2), b, padding=1)


def conv2d(x: "float32[n, c, h*2, w*2]", k: "float32[o, c, 3, 3]"):
    return F.conv2d(x, k, stride=2, padding=1)


def conv2d_right(x, k):
    columns = F.unfold(x, 3, stride=2, padding=1)
    made = k.flatten(1) @ columns
    return made.reshape(x.shape[0], k.shape[0], x.shape[2] // 2, x.shape[3] // 2)


def conv2d_wrong_pad(x, k):
    return F.conv2d(F.pad(x, (1, 1, 1, 1), value=0.01), k, stride=2)


def attention(q: "float32[heads, s, d]", k: "float32[heads, t, d]", v: "float32[heads, t, d]"):
    return F.scaled_dot_product_attention(q, k, v)


def attention_right(q, k, v):
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ v


def attention_wrong_scale(q, k, v):
    return torch.softmax(q @ k.transpose(1, 2) / q.shape[-1], dim=-1) @ v


def outer(a: "float32[m]", b: "float32[n]"):
    return torch.outer(a, b)


def outer_right(a, b):
    return a[:, None] * b


def outer_wrong_sum(a, b):
    return a[:, None] + b
