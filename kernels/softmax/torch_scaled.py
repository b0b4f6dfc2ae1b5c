"""Scaled and masked softmax with torch, in float32 (float64 for float64 inputs)."""

import torch

BACKEND = "torch"


def run(x, *, mask=None, scale):
    wide = (x if x.dtype == torch.float64 else x.float()) * scale
    if mask is not None:
        wide = wide + mask.to(wide.dtype)
    return torch.softmax(wide, -1).to(x.dtype)
