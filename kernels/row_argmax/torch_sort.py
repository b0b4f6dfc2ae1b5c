"""The last place of a stable sort."""

import torch

BACKEND = "torch"


def run(out, x):
    out.copy_(torch.sort(x.double(), dim=-1, stable=True).indices[:, -1])
