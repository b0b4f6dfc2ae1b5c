"""The rotation by unbinding and stacking torch tensors, with fused addcmul."""

import torch

BACKEND = "torch"


def run(x, cos, sin, *, style):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    axis = -1 if style == "interleaved" else -2
    half = x.shape[-1] // 2
    shape = (half, 2) if axis == -1 else (2, half)
    a, b = x.to(wide).reshape(*x.shape[:-1], *shape).unbind(axis)
    c, s = cos.to(wide)[:, None], sin.to(wide)[:, None]
    pair = torch.addcmul(a * c, b, s, value=-1), torch.addcmul(a * s, b, c)
    return torch.stack(pair, axis).reshape(x.shape).to(x.dtype)
