"""Activations: `name` is the reference, `name_right...` an honest kernel, `name_wrong...` one with a seeded bug."""

import math

import torch
import torch.nn.functional as F


def relu(x: "float32[rows, cols]"):
    return torch.relu(x)


def relu_right(x):
    return torch.where(x < 0, 0.0, x)


def relu_wrong_leak(x):
    return torch.maximum(x, 1e-3 * x)


def gelu(x: "float32[rows, cols]"):
    return F.gelu(x)


def gelu_right(x):
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_wrong_tanh(x):
    return F.gelu(x, approximate="tanh")


def tanh_gelu(x: "float32[rows, cols]"):
    return F.gelu(x, approximate="tanh")


def tanh_gelu_right(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def tanh_gelu_wrong_constant(x):
    return 0.5 * x * (1 + torch.tanh(0.7979 * (x + 0.0447 * x * x * x)))


def silu(x: "float32[rows, cols]"):
    return F.silu(x)


def silu_right(x):
    return x / (1.0 + torch.exp(-x))


def silu_wrong_half(x):
    return x * torch.sigmoid(x.half()).float()


def sigmoid(x: "float32[n]"):
    return torch.sigmoid(x)


def sigmoid_right(x):
    return 1.0 / (1.0 + torch.exp(-x))


def sigmoid_wrong_clip(x):
    return torch.sigmoid(torch.clamp(x, -20.0, 20.0))


def softplus(x: "float32[rows, cols]"):
    return F.softplus(x)


def softplus_right(x):
    return torch.where(x > 20, x, torch.log(1.0 + torch.exp(x)))


def softplus_right_stable(x):
    return torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-x.abs()))


def softplus_wrong_threshold(x):
    return torch.where(x > 4, x, torch.log(1.0 + torch.exp(x)))


def mish(x: "float32[rows, cols]"):
    return F.mish(x)


def mish_right(x):
    return x * torch.tanh(F.softplus(x))


def mish_wrong_sigmoid(x):
    return x * torch.sigmoid(1.1 * x)


def elu(x: "float32[rows, cols]"):
    return F.elu(x)


def elu_right(x):
    return torch.where(x > 0, x, torch.exp(x) - 1.0)


def elu_right_expm1(x):
    return torch.where(x > 0, x, torch.expm1(x))


def elu_wrong_edge(x):
    return torch.where(x > -1, x, torch.exp(x) - 1.0)


def hardswish(x: "float32[rows, cols]"):
    return F.hardswish(x)


def hardswish_right(x):
    return x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0


def hardswish_wrong_six(x):
    return x * torch.clamp(x + 3.0, 0.0, 5.5) / 6.0


def swiglu(gate: "float32[rows, cols]", up: "float32[rows, cols]"):
    return F.silu(gate) * up


def swiglu_right(gate, up):
    return gate * torch.sigmoid(gate) * up


def swiglu_wrong_swapped(gate, up):
    return F.silu(up) * gate


def tanh_scale(x: "float32[rows, cols]", *, scale: float = 2.0):
    return torch.tanh(x * scale)


def tanh_scale_right(x):
    return torch.tanh(2.0 * x)


def tanh_scale_wrong(x):
    return torch.tanh(2.001 * x)


def leaky_relu(x: "float32[rows, cols]"):
    return F.leaky_relu(x, 0.01)


def leaky_relu_right(x):
    return torch.where(x > 0, x, 0.01 * x)


def leaky_relu_wrong_tail(x):
    y = torch.where(x > 0, x, 0.01 * x)
    y[:, x.shape[1] // 4 * 4 :] = x[:, x.shape[1] // 4 * 4 :]
    return y
