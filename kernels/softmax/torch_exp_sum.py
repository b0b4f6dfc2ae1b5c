"""The three steps with torch in float32 (float64 for float64 inputs)."""

import torch

BACKEND = "torch"


def run(out, x):
    if x.shape[-1] == 0:
        return
    wide = x if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(dim=-1, keepdim=True))
    out.copy_(e / e.sum(dim=-1, keepdim=True))
