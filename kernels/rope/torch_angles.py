"""The rotation with tables where they are given, else with angles by torch.outer, as Hugging Face models have it."""

import torch

BACKEND = "torch"


def run(x, *, cos=None, sin=None, style, theta, offset, part):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    width = x.shape[-1] // part
    if cos is None:
        inverse = 1.0 / theta ** (torch.arange(0, width, 2, dtype=wide) / max(1, width))
        angle = torch.outer(torch.arange(offset, offset + x.shape[0], dtype=wide), inverse)
        cos, sin = angle.cos(), angle.sin()
    axis = -1 if style == "interleaved" else -2
    shape = (width // 2, 2) if axis == -1 else (2, width // 2)
    a, b = x[..., :width].to(wide).reshape(*x.shape[:-1], *shape).unbind(axis)
    c, s = cos.to(wide)[:, None], sin.to(wide)[:, None]
    turned = torch.stack((a * c - b * s, a * s + b * c), axis).reshape(*x.shape[:-1], width)
    return torch.cat((turned.to(x.dtype), x[..., width:]), -1)
