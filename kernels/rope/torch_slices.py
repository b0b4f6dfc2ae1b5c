"""The rotation by slices of a torch tensor, in float32 (float64 for float64 inputs)."""

import torch

BACKEND = "torch"


def _pairs(x, style):
    if style == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def run(out, x, cos, sin, *, style):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    a, b = _pairs(x.to(wide), style)
    c, s = cos.to(wide)[:, None], sin.to(wide)[:, None]
    y0, y1 = _pairs(out, style)
    y0.copy_(a * c - b * s)
    y1.copy_(a * s + b * c)
